// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"testing"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// countedSchedule counts the searches for a run.
type countedSchedule struct{ searches int }

func (s *countedSchedule) Next(t time.Time) time.Time {
	s.searches++
	for year := t.Year(); ; year++ {
		if run := time.Date(year, 2, 29, 8, 0, 0, 0, time.UTC); run.Day() == 29 && run.After(t) {
			return run
		}
	}
}

// A department with a digest on 29 February slowed each decision about its projects down by a second.
func TestLastRunOfRareDigest(t *testing.T) {
	schedule := &countedSchedule{}
	d := DigestSchedule{schedule: schedule, zone: time.UTC}
	run, day, found := d.LastRun(time.Date(2027, 12, 1, 0, 0, 0, 0, time.UTC))
	if want := time.Date(2024, 2, 29, 8, 0, 0, 0, time.UTC); !found || !run.Equal(want) || !day.Equal(period.DateOf(want, time.UTC)) {
		t.Errorf("last run %s on %s, found %t", run, day, found)
	}
	if schedule.searches > 20 {
		t.Errorf("%d searches for the last run", schedule.searches)
	}
}

// The last run is that of the latest day with one, by the schedule's first run of the day.
func TestLastRunIsThatOfTheLatestDay(t *testing.T) {
	for _, text := range []string{"0 8 * * *", "30 2 * * *", "*/7 3-5 * * 1", "0 0 31 * *"} {
		d, err := ParseDigestSchedule(v1alpha1.NoticeTerms{Digest: text, TimeZone: "Europe/Berlin"})
		if err != nil {
			t.Fatal(err)
		}
		for at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC); at.Year() == 2026; at = at.Add(5*time.Hour + 7*time.Minute) {
			want := time.Time{}
			for back := 0; want.IsZero(); back++ {
				local := at.In(d.zone)
				day := period.DateOf(time.Date(local.Year(), local.Month(), local.Day()-back, 0, 0, 0, 0, time.UTC), time.UTC)
				if run, ok := d.RunOn(day); ok && !run.After(at) {
					want = run
				}
			}
			if got, _, found := d.LastRun(at); !found || !got.Equal(want) {
				t.Fatalf("%q at %s: last run %s, want %s", text, at, got, want)
			}
		}
	}
}
