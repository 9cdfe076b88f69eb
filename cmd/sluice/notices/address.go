// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notices/wire"
)

var address = regexp.MustCompile(v1alpha1.EmailPattern)

// Lengths of an address, in bytes.
const (
	shortestAddress, longestAddress = 3, 254
	shownAddress                    = 60
)

// CheckAddress refuses what is not one plain address. The error names what was given,
// what is wrong with it, and what is allowed.
func CheckAddress(text string) error {
	wrong := wrongWith(text)
	if wrong == "" {
		return nil
	}
	shown := []rune(text)
	if len(shown) > shownAddress {
		shown = append(shown[:shownAddress-1], '…')
	}
	return fmt.Errorf("ADDRESS %q: %s; want one plain mail address such as anna.mueller@example.org: ASCII, at most %d characters, without a name, brackets, comments or spaces",
		string(shown), wrong, longestAddress)
}

// wrongWith says what is wrong with an address; empty for nothing.
func wrongWith(text string) string {
	has := func(characters string) bool { return strings.ContainsAny(text, characters) }
	switch {
	case len(text) > longestAddress:
		return fmt.Sprintf("it has %d bytes", len(text))
	case strings.ContainsFunc(text, unicode.IsControl):
		return "it has a line break or another control character"
	case strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }):
		return "it has a character beyond ASCII"
	case has(",;") || strings.Count(text, "@") > 1 && has(" "):
		return "it may be several"
	case has("()"):
		return "it has a comment"
	case has("<>\""):
		return "it has brackets or quotes"
	case has(" "):
		return "it has a space"
	case !has("@"):
		return "it has no @"
	case len(text) < shortestAddress || !address.MatchString(text):
		return "it is none"
	}
	// What no mail server takes is not asked of one.
	if err := wire.CheckAddress(text); err != nil {
		return err.Error()
	}
	return ""
}
