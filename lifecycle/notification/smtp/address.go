// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Limits of an address in bytes: RFC 5321 section 4.5.3.1, where the path of 256
// has two angle brackets.
const (
	maxAddressLength   = 254
	maxLocalPartLength = 64
	maxDomainLength    = 253
	maxLabelLength     = 63
)

// address is what may stand between the angle brackets of MAIL and RCPT.
type address struct {
	path string // with the domain in its ASCII form
	utf8 bool   // the local part needs SMTPUTF8
}

// ValidateAddress refuses an address to which [Sender.Send] would send nothing. The error
// says what is wrong with it, and not which it is.
func ValidateAddress(given string) error {
	_, err := parseAddress(given)
	return err
}

// parseAddress lets through what cannot end the brackets or the line it is put
// into: a local part that is a dot-string (RFC 5321 section 4.1.2, RFC 6531
// section 3.3) and a domain of DNS labels. Quoted local parts and address literals
// are not among them: nobody has such a mailbox, and they are how parameters are
// smuggled.
func parseAddress(given string) (address, error) {
	switch {
	case given == "":
		return address{}, errors.New("it is empty")
	case len(given) > maxAddressLength:
		return address{}, fmt.Errorf("it has %d bytes; %d are allowed", len(given), maxAddressLength)
	case !utf8.ValidString(given):
		return address{}, errors.New("it is not valid UTF-8")
	}
	at := strings.LastIndexByte(given, '@')
	if at < 0 {
		return address{}, errors.New("it has no @")
	}
	local, domain := given[:at], given[at+1:]
	if err := validateLocalPart(local); err != nil {
		return address{}, err
	}
	if !isASCII(domain) {
		ascii, err := idna.Lookup.ToASCII(domain)
		if err != nil {
			return address{}, fmt.Errorf("its domain %q is not a DNS name", domain)
		}
		domain = ascii
	}
	if !isDNSName(domain) {
		return address{}, fmt.Errorf("its domain %q is not a DNS name", domain)
	}
	if len(local)+1+len(domain) > maxAddressLength {
		return address{}, fmt.Errorf("it has %d bytes with its domain in ASCII; %d are allowed", len(local)+1+len(domain), maxAddressLength)
	}
	return address{path: local + "@" + domain, utf8: !isASCII(local)}, nil
}

// validateLocalPart admits atext (RFC 5322 section 3.2.3), dots between, and printable
// characters beyond ASCII.
func validateLocalPart(local string) error {
	if local == "" || len(local) > maxLocalPartLength {
		return fmt.Errorf("the part before the @ has %d bytes; 1 to %d are allowed", len(local), maxLocalPartLength)
	}
	if strings.HasPrefix(local, ".") || strings.HasSuffix(local, ".") || strings.Contains(local, "..") {
		return errors.New("the part before the @ has a dot at an end, or two in a row")
	}
	for _, r := range local {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		case r < utf8.RuneSelf && strings.ContainsRune(".!#$%&'*+-/=?^_`{|}~", r):
		case r >= utf8.RuneSelf && unicode.IsPrint(r) && !unicode.IsSpace(r):
		default:
			return fmt.Errorf("the part before the @ has the character %q, which is not allowed", r)
		}
	}
	return nil
}

// isDNSName is whether a name is letters, digits and hyphens between dots.
func isDNSName(name string) bool {
	if name == "" || len(name) > maxDomainLength {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabelLength || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			switch b := label[i]; {
			case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '-':
			default:
				return false
			}
		}
	}
	return true
}

func isASCII[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
