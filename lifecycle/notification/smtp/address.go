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

// address is a path of MAIL or RCPT, without angle brackets.
type address struct {
	path string // with the domain in its ASCII form
	utf8 bool   // the local part needs SMTPUTF8
}

// ValidateAddress returns an error for an address that [Sender.Send] would refuse. The error
// does not contain the address.
func ValidateAddress(text string) error {
	_, err := parseAddress(text)
	return err
}

// parseAddress accepts a local part that is a dot-string (RFC 5321 section 4.1.2, RFC 6531
// section 3.3) and a domain of DNS labels, so the address cannot end the brackets or the line
// of a command. It refuses quoted local parts and address literals: such mailboxes are not in
// use, and they allow smuggling of parameters.
func parseAddress(text string) (address, error) {
	switch {
	case text == "":
		return address{}, errors.New("it is empty")
	case len(text) > maxAddressLength:
		return address{}, fmt.Errorf("it has %d bytes; %d are allowed", len(text), maxAddressLength)
	case !utf8.ValidString(text):
		return address{}, errors.New("it is not valid UTF-8")
	}
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return address{}, errors.New("it has no @")
	}
	local, domain := text[:at], text[at+1:]
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

// validateLocalPart accepts atext (RFC 5322 section 3.2.3) with dots between, and printable
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

// isDNSName reports whether a name consists of labels of letters, digits and hyphens.
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
