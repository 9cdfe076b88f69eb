// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package period

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

func TestParseDate(t *testing.T) {
	for _, text := range []string{"2026-12-19", "2028-02-29", "0001-01-01", "9999-12-31"} {
		d, err := ParseDate(text)
		if err != nil || d.String() != text || d.IsZero() {
			t.Errorf("ParseDate(%q) = %q, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "2026-02-29", "2026-13-01", "2026-04-31", "2026-1-1", "19.12.2026", "2026-12-19T00:00:00Z", "-001-01-01", "20261219"} {
		d, err := ParseDate(text)
		if err == nil {
			t.Errorf("ParseDate(%q) = %q, want an error", text, d)
			continue
		}
		for _, part := range []string{"date", quoteText(text), "YYYY-MM-DD"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("ParseDate(%q): error %q does not say %q", text, err, part)
			}
		}
	}
}

// The CRDs check dates with DatePattern, the code with ParseDate.
func TestDatePatternMatchesParseDate(t *testing.T) {
	pattern := regexp.MustCompile(DatePattern)
	for _, year := range []int{0, 1, 4, 99, 100, 400, 1900, 1904, 1999, 2000, 2016, 2026, 2027, 2028, 2100, 2400, 9999} {
		for month := range 15 {
			for day := range 35 {
				text := fmt.Sprintf("%04d-%02d-%02d", year, month, day)
				if _, err := ParseDate(text); pattern.MatchString(text) != (err == nil) {
					t.Errorf("%s: by the pattern %v, by ParseDate %v", text, err != nil, err)
				}
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[0-9]{3,5}-[0-9]{1,2}-[0-3]?[0-9][ Z]?`).Draw(t, "text")
		if _, err := ParseDate(text); pattern.MatchString(text) != (err == nil) {
			t.Fatalf("%q: by the pattern %v, by ParseDate %v", text, err != nil, err)
		}
	})
}

func TestStartOfDay(t *testing.T) {
	for _, tc := range []struct {
		name, zone, date, want string
	}{
		{"an ordinary day", "Europe/Berlin", "2026-07-01", "2026-07-01T00:00:00+02:00"},
		{"the day the clocks go forward at two", "Europe/Berlin", "2026-03-29", "2026-03-29T00:00:00+01:00"},
		{"the day the clocks go back at three", "Europe/Berlin", "2026-10-25", "2026-10-25T00:00:00+02:00"},
		{"the clocks go forward over midnight, in the west", "America/Sao_Paulo", "2018-11-04", "2018-11-04T01:00:00-02:00"},
		{"the clocks go forward over midnight, in the east", "Africa/Cairo", "2023-04-28", "2023-04-28T01:00:00+03:00"},
		{"the clocks go back to midnight: there are two, the first counts", "America/Havana", "2025-11-02", "2025-11-02T00:00:00-04:00"},
		{"the clocks go back over midnight: there is one", "America/Sao_Paulo", "2018-02-18", "2018-02-18T00:00:00-03:00"},
		{"a day that a zone left out begins with the next", "Pacific/Apia", "2011-12-30", "2011-12-31T00:00:00+14:00"},
		{"a zone without any change", "UTC", "2026-07-01", "2026-07-01T00:00:00Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := MustParseDate(tc.date).Start(loadLocation(t, tc.zone))
			if !got.Equal(parseInstant(t, tc.want)) {
				t.Errorf("%s begins at %s, want %s", tc.date, got.Format(time.RFC3339), tc.want)
			}
		})
	}
}

func TestDateCompare(t *testing.T) {
	days := []string{"2025-12-31", "2026-01-01", "2026-01-31", "2026-02-01", "2027-01-01"}
	for i, a := range days {
		for j, b := range days {
			if got := MustParseDate(a).Compare(MustParseDate(b)); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%s compared with %s is %d", a, b, got)
			}
		}
	}
	if !MustParseDate("2026-01-01").Equal(DateOf(time.Date(2025, 12, 31, 23, 30, 0, 0, time.UTC), loadLocation(t, "Europe/Berlin"))) {
		t.Error("half past eleven in the evening, UTC, is not the new year in Berlin")
	}
}

// Users write dates in YAML without quotes.
func TestDateInYAML(t *testing.T) {
	type holiday struct {
		From Date  `json:"from"`
		To   *Date `json:"to,omitempty"`
	}
	var got holiday
	const text = "from: 2026-12-19\n"
	if err := yaml.UnmarshalStrict([]byte(text), &got); err != nil || got.From != MustParseDate("2026-12-19") {
		t.Fatalf("read %q as %+v, %v", text, got, err)
	}
	if back, err := yaml.Marshal(got); err != nil || strings.ReplaceAll(string(back), `"`, "") != text {
		t.Errorf("wrote %q, %v", back, err)
	}
	if err := yaml.UnmarshalStrict([]byte("from: 2026-02-30"), &got); err == nil {
		t.Error("read 30 February")
	}
}

func FuzzParseDate(f *testing.F) {
	for _, seed := range []string{"2026-12-19", "2028-02-29", "2026-02-29", "0000-00-00", "2026-12-19 "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDate(text)
		if err != nil {
			return
		}
		if d.String() != text {
			t.Fatalf("ParseDate(%q) = %q", text, d)
		}
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var read Date
		if err := json.Unmarshal(raw, &read); err != nil || read != d {
			t.Fatalf("%q became %#v through JSON: %v", text, read, err)
		}
		if start, end := d.Start(time.UTC), d.End(time.UTC); end.Sub(start) != 24*time.Hour {
			t.Fatalf("%q lasts from %s to %s", text, start, end)
		}
	})
}
