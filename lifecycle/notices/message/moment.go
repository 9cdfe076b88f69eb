// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// Moment is an instant as the recipient reads it, in the recipient's zone.
type Moment struct {
	// Date is the day: "Montag, 23. November 2026".
	Date string
	// Day is the day in a table: "23.11.2026".
	Day string
	// Time is the time of that day, with its zone: "18:14 Uhr MEZ". The end of a
	// project is at "24:00 Uhr MEZ" of its last day.
	Time string
	// At is both, as a sentence has it: "am Montag, dem 23. November 2026, um 18:14 Uhr MEZ".
	At string
	// Local is both, as a list has it: "Montag, 23. November 2026, 18:14 Uhr MEZ".
	Local string
	// Brief is both, as short as a subject has it: "Mo., 23.11., 18:14 MEZ", and in another
	// year "23.11.2027, 18:14 MEZ".
	Brief string
	// In is how long that is from when it was written: "in 24 Stunden"; empty for what
	// is past.
	In string
}

// teller tells times to one recipient.
type teller struct {
	language v1alpha1.Language
	zone     *time.Location
	now      time.Time
}

// newTeller tells times in UTC where the zone is none: each names its zone, and a
// warning that comes in another zone is better than none.
func newTeller(n *v1alpha1.Notice) teller {
	zone, err := time.LoadLocation(n.Spec.Recipient.TimeZone) // empty is UTC
	if err != nil || n.Spec.Recipient.TimeZone == "Local" {
		zone = time.UTC
	}
	return teller{language: language(n), zone: zone, now: written(n)}
}

// written is the instant from which a mail counts: when the Notice was recorded, which
// may be later than it was due; but when it was due, where time was stepped and the
// machine's says nothing.
func written(n *v1alpha1.Notice) time.Time {
	due, at := n.Spec.DueAt.Time, n.CreationTimestamp.Time
	if at.Before(due) || n.Spec.Deadline != nil && !at.Before(n.Spec.Deadline.Time) {
		return due
	}
	return at
}

// recorded is when the API server took the Notice; when it was due, of one that it has
// not seen.
func recorded(n *v1alpha1.Notice) time.Time {
	if n.CreationTimestamp.IsZero() {
		return n.Spec.DueAt.Time
	}
	return n.CreationTimestamp.Time
}

// moment is an instant. A midnight that ends a day is told as that day's 24:00.
func (t teller) moment(at time.Time, endsDay bool) *Moment {
	local := at.In(t.zone)
	day, clock := local, local.Format("15:04")
	if endsDay && local.Hour() == 0 && local.Minute() == 0 && local.Second() == 0 {
		day, clock = local.AddDate(0, 0, -1), "24:00"
	}
	zone := t.abbreviation(local) // not that of 24 hours before, on a day of 23 or 25
	m := &Moment{In: t.in(at)}
	if t.language == v1alpha1.LanguageGerman {
		month := monthsGerman[day.Month()-1]
		weekday := weekdaysGerman[day.Weekday()]
		m.Date = fmt.Sprintf("%s, %d. %s %d", weekday, day.Day(), month, day.Year())
		m.Day = day.Format("02.01.2006")
		m.Time = fmt.Sprintf("%s Uhr %s", clock, zone)
		m.At = fmt.Sprintf("am %s, dem %d. %s %d, um %s", weekday, day.Day(), month, day.Year(), m.Time)
		m.Brief = fmt.Sprintf("%s., %d.%d., %s %s", weekday[:2], day.Day(), day.Month(), clock, zone)
	} else {
		m.Date = day.Format("Monday, 2 January 2006")
		m.Day = day.Format("2 Jan 2006")
		m.Time = clock + " " + zone
		m.At = fmt.Sprintf("on %s, at %s", m.Date, m.Time)
		m.Brief = fmt.Sprintf("%s, %s", day.Format("Mon 2 Jan"), m.Time)
	}
	if day.Year() != t.now.In(t.zone).Year() {
		m.Brief = m.Day + ", " + clock + " " + zone
	}
	m.Local = m.Date + ", " + m.Time
	return m
}

// abbreviation is the zone's at an instant: CET and CEST have German names.
func (t teller) abbreviation(at time.Time) string {
	short, _ := at.Zone()
	if t.language == v1alpha1.LanguageGerman {
		switch short {
		case "CET":
			return "MEZ"
		case "CEST":
			return "MESZ"
		}
	}
	if strings.HasPrefix(short, "+") || strings.HasPrefix(short, "-") {
		return "UTC" + short // zones without a name: UTC+03
	}
	return short
}

// in is how long it is until an instant.
func (t teller) in(at time.Time) string {
	left := at.Sub(t.now)
	if left <= 0 {
		return ""
	}
	if left < time.Minute {
		if t.language == v1alpha1.LanguageGerman {
			return "in weniger als einer Minute"
		}
		return "in less than a minute"
	}
	return "in " + t.roughly(left).Dative
}

var (
	monthsGerman = [...]string{
		"Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November", "Dezember",
	}
	weekdaysGerman = [...]string{"Sonntag", "Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag"}
)
