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
	_ "time/tzdata"

	"pgregory.net/rapid"
)

func TestParsePeriodRejectsInvalidText(t *testing.T) {
	for _, text := range []string{
		"", "P", "P0D", "P0Y0M", "6M", "p6m", "P6", "P-6M", "P+6M", "P1.5Y", "P1,5Y", "PT6M", "P1DT1H",
		"P6M1Y", "P1M1M", "P100Y", "P1000M", "P6M ", " P6M", "P6M\n", "6 months", "PP6M", "P1Y6",
	} {
		p, err := ParsePeriod(text)
		if err == nil {
			t.Errorf("ParsePeriod(%q) = %#v, want an error", text, p)
			continue
		}
		for _, part := range []string{"period", quoteText(text), "such as P6M, P1Y6M, P2W or P30D"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("ParsePeriod(%q): error %q does not say %q", text, err, part)
			}
		}
	}
}

// The CRDs check periods with PeriodPattern, the code with ParsePeriod.
func TestPeriodPatternMatchesParsePeriod(t *testing.T) {
	pattern := regexp.MustCompile(PeriodPattern)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`P?([0-9]{0,4}[YMWDT]?){0,5}`).Draw(t, "text")
		_, err := ParsePeriod(text)
		if allowed := pattern.MatchString(text) && strings.ContainsAny(text, "123456789"); allowed != (err == nil) {
			t.Fatalf("%q: by the pattern %v, by ParsePeriod %v", text, allowed, err)
		}
	})
}

func TestAddTo(t *testing.T) {
	berlin := loadLocation(t, "Europe/Berlin")
	for _, tc := range []struct {
		name   string
		period string
		anchor string
		n      int
		want   string
	}{
		{"half a year", "P6M", "2026-10-01T09:30:00+02:00", 1, "2027-04-01T09:30:00+02:00"},
		{"clamped to the end of February", "P6M", "2026-08-31T12:00:00+02:00", 1, "2027-02-28T12:00:00+01:00"},
		{"clamped to the end of a leap year's February", "P6M", "2027-08-31T12:00:00+02:00", 1, "2028-02-29T12:00:00+01:00"},
		{"the second period counts from the anchor, not from the clamped day", "P6M", "2026-08-31T12:00:00+02:00", 2, "2027-08-31T12:00:00+02:00"},
		{"29 February in a year", "P1Y", "2028-02-29T00:00:00+01:00", 1, "2029-02-28T00:00:00+01:00"},
		{"29 February in four years", "P1Y", "2028-02-29T00:00:00+01:00", 4, "2032-02-29T00:00:00+01:00"},
		{"the year 2100 is no leap year", "P72Y", "2028-02-29T00:00:00+01:00", 1, "2100-02-28T00:00:00+01:00"},
		{"end of January to end of a month of 30", "P3M", "2026-01-31T08:00:00+01:00", 1, "2026-04-30T08:00:00+02:00"},
		{"over the turn of the year", "P1M", "2026-12-31T08:00:00+01:00", 1, "2027-01-31T08:00:00+01:00"},
		{"first the months, then the days", "P1M1D", "2026-01-31T08:00:00+01:00", 1, "2026-03-01T08:00:00+01:00"},
		{"weeks keep the time of day over the change of the clocks", "P2W", "2026-03-20T12:00:00+01:00", 1, "2026-04-03T12:00:00+02:00"},
		{"a time that the night of the change leaves out", "P1D", "2026-03-28T02:30:00+01:00", 1, "2026-03-29T03:30:00+02:00"},
		{"the anchor's day is that of the zone", "P1M", "2026-01-30T23:30:00Z", 1, "2026-02-28T00:30:00+01:00"},
		{"no period at all", "P6M", "2026-08-31T12:00:00+02:00", 0, "2026-08-31T12:00:00+02:00"},
		{"backwards", "P6M", "2027-08-31T12:00:00+02:00", -1, "2027-02-28T12:00:00+01:00"},
		{"backwards over the turn of the year", "P1Y6M", "2026-01-15T12:00:00+01:00", -1, "2024-07-15T12:00:00+02:00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := MustParsePeriod(tc.period).AddTo(parseInstant(t, tc.anchor), tc.n, berlin)
			if !got.Equal(parseInstant(t, tc.want)) || got.Location() != berlin {
				t.Errorf("%s + %d x %s = %s, want %s", tc.anchor, tc.n, tc.period, got.Format(time.RFC3339), tc.want)
			}
		})
	}
}

func TestExpiryOf(t *testing.T) {
	for _, tc := range []struct {
		name   string
		zone   string
		period string
		anchor string
		n      int
		want   string
	}{
		{"the whole last day is valid", "Europe/Berlin", "P6M", "2026-10-01T09:30:00+02:00", 1, "2027-04-02T00:00:00+02:00"},
		{"clamped", "Europe/Berlin", "P6M", "2026-08-31T23:59:59+02:00", 1, "2027-03-01T00:00:00+01:00"},
		{"the day the clocks go forward has 23 hours", "Europe/Berlin", "P1M", "2026-02-28T12:00:00+01:00", 1, "2026-03-29T00:00:00+01:00"},
		{"and ends at the next midnight", "Europe/Berlin", "P1M", "2026-03-01T12:00:00+01:00", 1, "2026-04-02T00:00:00+02:00"},
		{"the end of that very day", "Europe/Berlin", "P1D", "2026-03-28T12:00:00+01:00", 1, "2026-03-30T00:00:00+02:00"},
		{"the day the clocks go back has 25 hours", "Europe/Berlin", "P1D", "2026-10-24T12:00:00+02:00", 1, "2026-10-26T00:00:00+01:00"},
		{"just before midnight UTC it is tomorrow in Berlin", "Europe/Berlin", "P1D", "2026-06-30T22:30:00Z", 1, "2026-07-03T00:00:00+02:00"},
		{"in UTC it is not", "UTC", "P1D", "2026-06-30T22:30:00Z", 1, "2026-07-02T00:00:00Z"},
		{"a zone whose clocks skip midnight", "America/Sao_Paulo", "P1D", "2018-11-02T12:00:00-03:00", 1, "2018-11-04T01:00:00-02:00"},
		{"a zone that skips a whole day", "Pacific/Apia", "P1D", "2011-12-28T12:00:00-10:00", 1, "2011-12-31T00:00:00+14:00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := MustParsePeriod(tc.period).ExpiryOf(parseInstant(t, tc.anchor), tc.n, loadLocation(t, tc.zone))
			if !got.Equal(parseInstant(t, tc.want)) {
				t.Errorf("%s + %d x %s ends at %s, want %s", tc.anchor, tc.n, tc.period, got.Format(time.RFC3339), tc.want)
			}
		})
	}
}

func TestPeriodEqual(t *testing.T) {
	for _, pair := range [][2]string{{"P12M", "P1Y"}, {"P2W", "P14D"}, {"P0Y6M", "P6M"}} {
		if !MustParsePeriod(pair[0]).Equal(MustParsePeriod(pair[1])) {
			t.Errorf("%s and %s are not equal", pair[0], pair[1])
		}
	}
	if MustParsePeriod("P1M").Equal(MustParsePeriod("P30D")) {
		t.Error("P1M equals P30D")
	}
}

func TestPeriodProperties(t *testing.T) {
	zones := []*time.Location{time.UTC}
	for _, name := range []string{"Europe/Berlin", "America/Sao_Paulo", "Africa/Cairo", "America/St_Johns", "America/Havana", "Pacific/Apia", "Australia/Lord_Howe"} {
		zones = append(zones, loadLocation(t, name))
	}
	rapid.Check(t, func(t *rapid.T) {
		loc := rapid.SampledFrom(zones).Draw(t, "zone")
		anchor := time.Unix(rapid.Int64Range(-2e8, 4e9).Draw(t, "anchor"), 0)
		n := rapid.IntRange(0, 30).Draw(t, "n")
		years, months := rapid.IntRange(0, 99).Draw(t, "years"), rapid.IntRange(0, 999).Draw(t, "months")
		days := rapid.IntRange(0, 999).Draw(t, "days")
		p, err := ParsePeriod(fmt.Sprintf("P%dY%dM%dD", years, months, days))
		if err != nil {
			t.Skip("longer than zero only")
		}

		day, end := p.dateAfter(DateOf(anchor, loc), n), p.ExpiryOf(anchor, n, loc)
		if got := DateOf(end, loc); got.Compare(day) <= 0 {
			t.Fatalf("at its expiry %s it is still the last day, %s", end.In(loc), day)
		}
		if got := DateOf(end.Add(-time.Nanosecond), loc); got.Compare(day) > 0 {
			t.Fatalf("just before its expiry %s the last day, %s, is over", end.In(loc), day)
		}
		if next := p.ExpiryOf(anchor, n+1, loc); !end.Before(next) {
			t.Fatalf("period %d ends at %s, the next at %s", n, end, next)
		}
		if n == 0 && !p.AddTo(anchor, 0, loc).Equal(anchor) && !isAmbiguous(anchor, loc) {
			t.Fatalf("no period after %s is %s", anchor.In(loc), p.AddTo(anchor, 0, loc))
		}
		if days == 0 && day.day != DateOf(anchor, loc).day && day.day != lastDayOfMonth(day) {
			t.Fatalf("%s plus months is %s: neither the same day nor the month's last", anchor.In(loc), day)
		}
		double, err := ParsePeriod(fmt.Sprintf("P%dY%dM%dD", 2*years, 2*months, 2*days))
		if err == nil && days == 0 && double.dateAfter(DateOf(anchor, loc), n) != p.dateAfter(DateOf(anchor, loc), 2*n) {
			t.Fatalf("%d x %s is not %d x %s", 2*n, p, n, double)
		}
	})
}

func FuzzParsePeriod(f *testing.F) {
	for _, seed := range []string{"P6M", "P1Y6M", "P2W", "P30D", "P0D", "P99Y999M999W999D", "PT6M", "P6M1Y", "P-1D"} {
		f.Add(seed)
	}
	pattern := regexp.MustCompile(PeriodPattern)
	anchor := time.Date(2028, 2, 29, 23, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePeriod(text)
		if err != nil {
			return
		}
		if !pattern.MatchString(text) || p.IsZero() || p.String() != text {
			t.Fatalf("ParsePeriod(%q) = %#v", text, p)
		}
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var read Period
		if err := json.Unmarshal(raw, &read); err != nil || read != p {
			t.Fatalf("%q became %#v through JSON: %v", text, read, err)
		}
		if end := p.ExpiryOf(anchor, 1, time.UTC); !end.After(anchor) || end.Year() > 9999 {
			t.Fatalf("%s after %s ends at %s", text, anchor, end)
		}
	})
}

// isAmbiguous reports whether the local time of t happens twice.
func isAmbiguous(t time.Time, loc *time.Location) bool {
	local := t.In(loc)
	for _, shift := range []time.Duration{-24 * time.Hour, -time.Hour, -30 * time.Minute, 30 * time.Minute, time.Hour, 24 * time.Hour} {
		if other := local.Add(shift); other.Format(time.DateTime) == local.Format(time.DateTime) {
			return true
		}
	}
	return false
}

func lastDayOfMonth(d Date) int {
	return time.Date(d.year, d.month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func loadLocation(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func parseInstant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func quoteText(text string) string { return fmt.Sprintf("%q", text) }
