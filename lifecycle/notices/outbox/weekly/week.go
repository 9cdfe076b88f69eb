// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package weekly

import (
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notices"
)

// week is one that ended, and when it is told of.
type week struct {
	// from and to bound it; to is Monday's midnight, and not in it.
	from, to time.Time
	// due is when it is told of, and day its first day.
	due time.Time
	day period.Date
	// next is when the week after is told of.
	next time.Time
	// zone is the department's.
	zone *time.Location
}

// monday is when the week is told of by a department without a digest, as hours after
// midnight.
const monday = 8

// weekOf is the last week at t that is to be told of already.
func weekOf(terms v1alpha1.NoticeTerms, t time.Time) (week, error) {
	zone, err := time.LoadLocation(terms.TimeZone)
	if err != nil {
		return week{}, err
	}
	digests, err := notices.DigestsOf(terms)
	if err != nil {
		return week{}, err
	}
	start := t.In(zone)
	for start.Weekday() != time.Monday {
		start = start.AddDate(0, 0, -1)
	}
	this := period.DateOf(start, zone)
	due := dueIn(digests, this, zone)
	if t.Before(due) {
		return week{
			from: shifted(this, -14, zone).Start(zone), to: shifted(this, -7, zone).Start(zone), day: shifted(this, -14, zone),
			due: dueIn(digests, shifted(this, -7, zone), zone), next: due, zone: zone,
		}, nil
	}
	return week{
		from: shifted(this, -7, zone).Start(zone), to: this.Start(zone), day: shifted(this, -7, zone),
		due: due, next: dueIn(digests, shifted(this, 7, zone), zone), zone: zone,
	}, nil
}

// dueIn is the first digest of the week that begins on a Monday, or its eight o'clock.
func dueIn(digests *notices.Digests, on period.Date, zone *time.Location) time.Time {
	if digests != nil {
		for n := range 7 {
			if run, ok := digests.On(shifted(on, n, zone)); ok {
				return run
			}
		}
	}
	midnight := on.Start(zone)
	return time.Date(midnight.Year(), midnight.Month(), midnight.Day(), monday, 0, 0, 0, zone)
}

// shifted is the date so many days later. Noon is on that day in every zone.
func shifted(d period.Date, days int, zone *time.Location) period.Date {
	return period.DateOf(d.Start(zone).Add(12*time.Hour).AddDate(0, 0, days), zone)
}
