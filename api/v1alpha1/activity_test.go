// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

func TestActivityTermsText(t *testing.T) {
	window := period.MustParseDuration("1m30s")
	for want, terms := range map[string]v1alpha1.ActivityTerms{
		"5%/5m": {}, "20%/5m": {Percent: 20}, "100%/1m30s": {Percent: 100, Window: &window},
	} {
		if got := terms.String(); got != want {
			t.Errorf("%+v is %q, want %q", terms, got, want)
		}
		parsed, err := v1alpha1.ParseActivityTerms(want)
		if err != nil || parsed.String() != want || parsed.Window.Length() != terms.WithDefaults().Window.Length() {
			t.Errorf("%q is %+v, %v", want, parsed, err)
		}
	}
}

// What is no value that the webhook writes is refused, with a short error.
func TestParseHostileActivityTerms(t *testing.T) {
	for _, text := range []string{
		"", "5%", "%/", "/", "5/5m", "5%/", "0%/5m", "101%/5m", "-1%/5m", "+5%/5m", "1e1%/5m", "5.5%/5m", " 5%/5m", "5%/5m ", "5%/5m\n",
		"5%/29s", "5%/1h1s", "5%/99999d", "5%/0s", "5%/-5m", "5%/5", "5%/m", "5%/5m/5m", "5%/5m%/5m", "NaN%/5m", "5%/5m\x00", "\xff%/5m",
		"18446744073709551621%/5m", "5%/18446744073709551615s", strings.Repeat("0", 40) + "5%/5m", "5%/" + strings.Repeat("5m", 1<<20),
	} {
		terms, err := v1alpha1.ParseActivityTerms(text)
		if err == nil {
			t.Errorf("%.60q is %s", text, terms)
		} else if len(err.Error()) > 300 || !strings.Contains(err.Error(), "such as 5%/5m") {
			t.Errorf("%.60q: %.400s", text, err)
		}
	}
}

// A parsed value is within the limits, and the same after another round.
func FuzzParseActivityTerms(f *testing.F) {
	for _, text := range []string{"5%/5m", "100%/1h", "1%/30s", "005%/0d0h1m0s", "5%/5m0s", "%/", "5%/99999s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		terms, err := v1alpha1.ParseActivityTerms(text)
		if err != nil {
			return
		}
		if w := terms.Window.Length(); terms.Percent < 1 || terms.Percent > 100 || w < 30*time.Second || w > time.Hour || len(text) > v1alpha1.MaxActiveText {
			t.Fatalf("%q is %s", text, terms)
		}
		if again, err := v1alpha1.ParseActivityTerms(terms.String()); err != nil || again.String() != terms.String() {
			t.Fatalf("%q is %s, and then %s, %v", text, terms, again, err)
		}
	})
}
