// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"net/mail"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
)

// The sender of mail parses addresses with net/mail, so net/mail must accept every address that the
// schema accepts, and return the same one.
func TestEmailPatternAcceptsOnlyValidAddresses(t *testing.T) {
	pattern := regexp.MustCompile(v1alpha1.EmailPattern)
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.StringMatching(strings.ReplaceAll(v1alpha1.EmailPattern, "-]*", "-]{0,9}")).Draw(t, "address")
		parsed, err := mail.ParseAddress(address)
		if err != nil || parsed.Address != address || parsed.Name != "" {
			t.Fatalf("%q is read as %+v: %v", address, parsed, err)
		}
	})
	for address, want := range map[string]bool{
		"anna.mueller@example.org":    true,
		"pat.o'brien+gpu@cs.x.org":    true,
		"root@localhost":              true,
		"a@b.c\r\nBcc: d@e.f":         false,
		"a@b.c\n":                     false,
		"Anna <a@b.c>":                false,
		`"a b"@c.d`:                   false,
		"v@x> NOTIFY=NEVER ORCPT=r;z": false,
		"a@b@c":                       false,
		"a..b@c.d":                    false,
		".a@b.c":                      false,
		"a@-b.c":                      false,
		"a@b..c":                      false,
		"jörg@b.c":                    false,
		"a@[127.0.0.1]":               false,
		"":                            false,
	} {
		if got := pattern.MatchString(address); got != want {
			t.Errorf("%q is accepted: %v", address, got)
		}
	}
}
