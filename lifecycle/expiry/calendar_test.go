// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

func berlin(t testing.TB) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func holidays(ranges ...string) (all []v1alpha1.Holiday) {
	for i := 0; i < len(ranges); i += 2 {
		all = append(all, v1alpha1.Holiday{From: period.MustParseDate(ranges[i]), To: period.MustParseDate(ranges[i+1])})
	}
	return all
}

func TestNoticeWithoutHolidays(t *testing.T) {
	zone := berlin(t)
	winter := holidays("2026-12-24", "2027-01-06", "2026-12-19", "2026-12-23")
	at := func(text string) time.Time {
		parsed, err := time.ParseInLocation("2006-01-02 15:04", text, zone)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	day := 24 * time.Hour
	c := NewCalendar(winter, zone)
	if got := c.Postpone(at("2027-01-02 00:00")); !got.Equal(at("2027-01-07 00:00")) {
		t.Errorf("a step in the holidays moves to %s", got)
	}
	for _, tc := range []struct {
		until  string
		notice time.Duration
		want   string
	}{
		{"2027-01-07 00:00", day, "2026-12-18 00:00"},
		{"2027-01-07 00:00", 7 * day, "2026-12-12 00:00"},
		{"2027-01-08 00:00", day, "2027-01-07 00:00"},
		{"2027-01-08 00:00", 2 * day, "2026-12-18 00:00"},
		{"2026-12-10 00:00", 7 * day, "2026-12-03 00:00"},
	} {
		got := c.Before(at(tc.until), tc.notice)
		if !got.Equal(at(tc.want)) {
			t.Errorf("%s before %s is %s, want %s", tc.notice, tc.until, got, tc.want)
		}
		if back := c.After(got, tc.notice); back.After(at(tc.until)) {
			t.Errorf("%s after %s is %s, want at most %s", tc.notice, got, back, tc.until)
		}
	}
}

// Before and After are inverse, and never count holidays.
func TestNoticeProperties(t *testing.T) {
	zone := berlin(t)
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, zone)
		date := func(label string) period.Date {
			return period.DateOf(start.AddDate(0, 0, rapid.IntRange(0, 120).Draw(t, label)), zone)
		}
		var all []v1alpha1.Holiday
		for range rapid.IntRange(0, 4).Draw(t, "holidays") {
			from := date("from")
			all = append(all, v1alpha1.Holiday{From: from, To: period.DateOf(from.Start(zone).AddDate(0, 0, rapid.IntRange(0, 20).Draw(t, "days")), zone)})
		}
		c := NewCalendar(all, zone)
		at := start.Add(time.Duration(rapid.IntRange(0, 120*24).Draw(t, "hours")) * time.Hour)
		notice := time.Duration(rapid.IntRange(1, 40*24).Draw(t, "notice")) * time.Hour
		before := c.Before(at, notice)
		counted := time.Duration(0)
		for hour := before; hour.Before(at); hour = hour.Add(time.Hour) {
			if c.Postpone(hour).Equal(hour) {
				counted += time.Hour
			}
		}
		if counted != notice {
			t.Fatalf("%s before %s is %s, with %s outside of holidays", notice, at, before, counted)
		}
		if after := c.After(before, notice); after.After(at) || after.Before(before.Add(notice)) {
			t.Fatalf("%s after %s is %s, and %s is %s before %s", notice, before, after, before, notice, at)
		}
	})
}
