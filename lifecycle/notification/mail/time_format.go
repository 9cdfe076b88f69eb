// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// LocalizedTime is a time in the recipient's language and zone.
type LocalizedTime struct {
	// Date is the day: "Montag, 23. November 2026".
	Date string
	// Day is the day in a table: "23.11.2026".
	Day string
	// Time is the time of that day, with its zone: "18:14 Uhr MEZ". The end of a
	// project is at "24:00 Uhr MEZ" of its last day.
	Time string
	// At is both for a sentence: "am Montag, dem 23. November 2026, um 18:14 Uhr MEZ".
	At string
	// Local is both for a list: "Montag, 23. November 2026, 18:14 Uhr MEZ".
	Local string
	// Brief is both for a subject: "Mo., 23.11., 18:14 MEZ", or in another
	// year "23.11.2027, 18:14 MEZ".
	Brief string
	// In is the duration from the reference time: "in 24 Stunden"; empty for a past time.
	In string
	// Ahead reports whether the time is after the reference time.
	Ahead bool
}

// timeFormatter formats times for one recipient.
type timeFormatter struct {
	language v1alpha1.Language
	zone     *time.Location
	now      time.Time
	// absolute leaves out durations from now.
	absolute bool
}

// newTimeFormatter returns a formatter for the recipient's zone, or UTC if it is invalid. Each
// formatted time names its zone.
func newTimeFormatter(n *v1alpha1.Notice) timeFormatter {
	zone, err := time.LoadLocation(n.Spec.Recipient.TimeZone) // empty is UTC
	if err != nil || n.Spec.Recipient.TimeZone == "Local" {
		zone = time.UTC
	}
	return timeFormatter{language: languageOf(n), zone: zone, now: referenceTime(n)}
}

// referenceTime returns the time from which a mail counts durations if the request has none: when the Notice was recorded,
// or when it was due if policy time was stepped away from machine time.
func referenceTime(n *v1alpha1.Notice) time.Time {
	due, at := n.Spec.DueAt.Time, n.CreationTimestamp.Time
	if at.Before(due) || n.Spec.Deadline != nil && !at.Before(n.Spec.Deadline.Time) {
		return due
	}
	return at
}

// recordedAt returns the creation time of the Notice, or its due time before creation.
func recordedAt(n *v1alpha1.Notice) time.Time {
	if n.CreationTimestamp.IsZero() {
		return n.Spec.DueAt.Time
	}
	return n.CreationTimestamp.Time
}

// formatTime formats a time. With endsDay midnight becomes 24:00 of the day before.
func (t timeFormatter) formatTime(at time.Time, endsDay bool) *LocalizedTime {
	local := at.In(t.zone)
	day, clock := local, local.Format("15:04")
	if endsDay && local.Hour() == 0 && local.Minute() == 0 && local.Second() == 0 {
		day, clock = local.AddDate(0, 0, -1), "24:00"
	}
	zone := t.zoneAbbreviation(local) // not that of 24 hours before, on a day of 23 or 25
	m := &LocalizedTime{In: t.timeUntil(at), Ahead: at.After(t.now)}
	if t.language == v1alpha1.LanguageGerman {
		month := germanMonths[day.Month()-1]
		weekday := germanWeekdays[day.Weekday()]
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

// zoneAbbreviation returns the zone's abbreviation; CET and CEST have German names.
func (t timeFormatter) zoneAbbreviation(at time.Time) string {
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

// timeUntil formats the duration until a time.
func (t timeFormatter) timeUntil(at time.Time) string {
	left := at.Sub(t.now)
	if left <= 0 || t.absolute {
		return ""
	}
	if left < time.Minute {
		if t.language == v1alpha1.LanguageGerman {
			return "in weniger als einer Minute"
		}
		return "in less than a minute"
	}
	return "in " + t.formatRounded(left).Dative
}

var (
	germanMonths = [...]string{
		"Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November", "Dezember",
	}
	germanWeekdays = [...]string{"Sonntag", "Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag"}
)

// LocalizedDuration is a duration in words.
type LocalizedDuration struct {
	// Text is the plain form: "10 Tage".
	Text string
	// Dative is the form after "in", "nach" or "von": "10 Tagen".
	Dative string
}

const oneDay = 24 * time.Hour

// durationUnits holds the units with their singular and plural, and the German dative forms.
var durationUnits = []struct {
	length                     time.Duration
	one, more                  string
	eine, einer, viele, vielen string
}{
	{oneDay, "day", "days", "Tag", "Tag", "Tage", "Tagen"},
	{time.Hour, "hour", "hours", "Stunde", "Stunde", "Stunden", "Stunden"},
	{time.Minute, "minute", "minutes", "Minute", "Minute", "Minuten", "Minuten"},
	{time.Second, "second", "seconds", "Sekunde", "Sekunde", "Sekunden", "Sekunden"},
}

// formatExact formats a duration with all its units, and up to two days in hours, as limits are
// written.
func (t timeFormatter) formatExact(d time.Duration) *LocalizedDuration {
	d = d.Truncate(time.Second)
	var text, dative []string
	for _, u := range durationUnits {
		if u.length == oneDay && d < 3*oneDay {
			continue
		}
		if n := int64(d / u.length); n > 0 || u.length == time.Second && len(text) == 0 {
			d %= u.length
			one := t.pluralize(n, u.one, u.more, u.eine, u.viele)
			text = append(text, one)
			dative = append(dative, t.pluralize(n, u.one, u.more, u.einer, u.vielen))
		}
	}
	return &LocalizedDuration{Text: strings.Join(text, " "), Dative: strings.Join(dative, " ")}
}

// formatRounded formats a duration in one unit, rounded to the nearest.
func (t timeFormatter) formatRounded(d time.Duration) *LocalizedDuration {
	unit := time.Minute
	switch {
	case d >= 47*time.Hour+30*time.Minute:
		unit = oneDay
	case d >= 90*time.Minute:
		unit = time.Hour
	}
	if d = d.Round(unit); unit == oneDay {
		n := int64(d / oneDay)
		return &LocalizedDuration{Text: t.pluralize(n, "day", "days", "Tag", "Tage"), Dative: t.pluralize(n, "day", "days", "Tag", "Tagen")}
	}
	return t.formatExact(d)
}

func (t timeFormatter) pluralize(n int64, one, more, eine, viele string) string {
	if t.language == v1alpha1.LanguageGerman {
		one, more = eine, viele
	}
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + more
}
