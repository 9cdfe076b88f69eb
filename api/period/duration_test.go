// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package period

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"30m":                      30 * time.Minute,
		"48h":                      48 * time.Hour,
		"10d":                      240 * time.Hour,
		"1d12h":                    36 * time.Hour,
		"1d1h1m1s":                 25*time.Hour + time.Minute + time.Second,
		"0d1s":                     time.Second,
		"007m":                     7 * time.Minute,
		"90m":                      90 * time.Minute,
		"99999d99999h99999m99999s": 99999*day + 99999*time.Hour + 99999*time.Minute + 99999*time.Second,
	} {
		d, err := ParseDuration(text)
		if err != nil {
			t.Errorf("ParseDuration(%q): %v", text, err)
			continue
		}
		if d.Length() != want || d.String() != text || d.IsZero() {
			t.Errorf("ParseDuration(%q) = %q of %v, want %v", text, d, d.Length(), want)
		}
	}
}

func TestParseDurationRejectsInvalidText(t *testing.T) {
	for _, text := range []string{
		"", " ", "0", "0s", "0d0h0m0s", "d", "5", "-5h", "+5h", "1.5h", "1h ", " 1h", "1 h",
		"1h1d", "1h1h", "2w", "1y", "500ms", "1H", "P1D", "100000d", "1h\n", "١h", "1e3s", "48",
	} {
		d, err := ParseDuration(text)
		if err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", text, d.Length())
			continue
		}
		if d != (Duration{}) {
			t.Errorf("ParseDuration(%q) returned a value beside its error: %#v", text, d)
		}
		for _, part := range []string{"duration", quoteText(text), "such as 30m, 48h, 10d or 1d12h"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("ParseDuration(%q): error %q does not say %q", text, err, part)
			}
		}
	}
}

// The CRDs check durations with DurationPattern, the code with ParseDuration;
// a text that matches one must match the other.
func TestDurationPatternMatchesParseDuration(t *testing.T) {
	pattern := regexp.MustCompile(DurationPattern)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([0-9]{0,7}[dhmsw]?){0,5}`).Draw(t, "text")
		_, err := ParseDuration(text)
		if allowed := pattern.MatchString(text) && strings.ContainsAny(text, "123456789"); allowed != (err == nil) {
			t.Fatalf("%q: by the pattern %v, by ParseDuration %v", text, allowed, err)
		}
	})
}

func TestLongestDurationFits(t *testing.T) {
	d := MustParseDuration("99999d99999h99999m99999s")
	if d.Length() <= 0 || d.Length() > math.MaxInt64-365*24*time.Hour {
		t.Errorf("the longest duration is %v", d.Length())
	}
}

func TestDurationOf(t *testing.T) {
	for length, want := range map[time.Duration]string{
		time.Second:                           "1s",
		90 * time.Minute:                      "1h30m",
		48 * time.Hour:                        "2d",
		25*time.Hour + 1500*time.Millisecond:  "1d1h1s",
		99999 * 24 * time.Hour:                "99999d",
		99999*24*time.Hour + 23*time.Hour + 1: "99999d23h",
	} {
		d, err := DurationOf(length)
		if err != nil || d.String() != want {
			t.Errorf("DurationOf(%v) = %q, %v, want %q", length, d, err, want)
		}
	}
	for _, length := range []time.Duration{0, -time.Hour, 999 * time.Millisecond, 100000 * 24 * time.Hour, math.MinInt64, math.MaxInt64} {
		if d, err := DurationOf(length); err == nil || !strings.Contains(err.Error(), "at least 1s and at most 99999d") {
			t.Errorf("DurationOf(%d) = %q, %v, want an error that says what is allowed", length, d, err)
		}
	}
}

func TestDurationEqual(t *testing.T) {
	if !MustParseDuration("48h").Equal(MustParseDuration("2d")) {
		t.Error("48h and 2d are not equal")
	}
	if diff := cmp.Diff(MustParseDuration("90m"), MustParseDuration("1h30m")); diff != "" {
		t.Errorf("cmp distinguishes 90m from 1h30m: %s", diff)
	}
	if MustParseDuration("1h").Equal(Duration{}) {
		t.Error("1h equals nothing")
	}
}

func TestDurationInYAML(t *testing.T) {
	type limits struct {
		Max  *Duration `json:"max,omitempty"`
		Idle *Duration `json:"idle,omitempty"`
	}
	var got limits
	const text = "max: 10d\n"
	if err := yaml.UnmarshalStrict([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Max == nil || got.Max.Length() != 240*time.Hour || got.Idle != nil {
		t.Errorf("read %q as %+v", text, got)
	}
	back, err := yaml.Marshal(got)
	if err != nil || string(back) != text {
		t.Errorf("wrote %q, %v, want %q", back, err, text)
	}
	for _, wrong := range []string{"max: 10x", "max: 10", "max: [1d]", "max: 0d"} {
		if err := yaml.UnmarshalStrict([]byte(wrong), &got); err == nil {
			t.Errorf("read %q without an error", wrong)
		}
	}
}

func TestMustParseDurationPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("MustParseDuration accepted an invalid text")
		}
	}()
	MustParseDuration("soon")
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"48h", "10d", "1d12h", "0s", "99999d99999h99999m99999s", "1h1d", "-1h", "1.5h", "٣h", "00001s"} {
		f.Add(seed)
	}
	pattern := regexp.MustCompile(DurationPattern)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		if !pattern.MatchString(text) || d.Length() < time.Second || d.String() != text {
			t.Fatalf("ParseDuration(%q) = %q of %v", text, d, d.Length())
		}
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var read Duration
		if err := json.Unmarshal(raw, &read); err != nil || read != d {
			t.Fatalf("%q became %#v through JSON: %v", text, read, err)
		}
		if days := d.Length() / (24 * time.Hour); days <= 99999 {
			if shortest, err := DurationOf(d.Length()); err != nil || !shortest.Equal(d) {
				t.Fatalf("DurationOf(%v) = %q, %v", d.Length(), shortest, err)
			}
		}
	})
}
