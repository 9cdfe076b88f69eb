// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package period

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"
)

// DatePattern is the regular expression of a Date: all days of the calendar, including leap days.
const DatePattern = `^([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|` +
	`([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)$`

// Date is a calendar day, such as 2026-12-19, without a time zone: Start and End take a location.
// The zero value means that it is not set and has the text "".
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=10
// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)$')",message="must be a day that exists, as YYYY-MM-DD, such as 2026-12-19"
type Date struct {
	year  int
	month time.Month
	day   int
}

// ParseDate parses a Date in the form YYYY-MM-DD. The day must exist.
func ParseDate(text string) (Date, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return Date{}, fmt.Errorf("date %q: want a day that exists, as YYYY-MM-DD, such as 2026-12-19", text)
	}
	return DateOf(t, time.UTC), nil
}

// MustParseDate is ParseDate for constants of the program. It panics on an error.
func MustParseDate(text string) Date {
	return must(ParseDate(text))
}

// DateOf returns the day of t in loc. A nil loc means UTC.
func DateOf(t time.Time, loc *time.Location) Date {
	var d Date
	d.year, d.month, d.day = t.In(locationOrUTC(loc)).Date()
	return d
}

// Start returns the first instant of the day in loc. If clocks are set back over midnight, it is
// the first of the two midnights. If they are set forward over it, it is the moment of the
// change. A nil loc means UTC.
func (d Date) Start(loc *time.Location) time.Time {
	midnight := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, locationOrUTC(loc))
	from, to := midnight.ZoneBounds()
	// Without such a midnight, time.Date answers from either side of the gap.
	switch side := DateOf(midnight, loc).Compare(d); {
	case side < 0:
		return to
	case side > 0 || midnight.Hour() > 0:
		return from
	}
	_, offset := midnight.Zone()
	_, before := from.Add(-time.Nanosecond).Zone()
	first := midnight.Add(time.Duration(offset-before) * time.Second)
	if !from.IsZero() && first.Before(from) {
		return first
	}
	return midnight
}

// End returns the end of the day in loc: the start of the next day.
func (d Date) End(loc *time.Location) time.Time {
	next := time.Date(d.year, d.month, d.day+1, 0, 0, 0, 0, time.UTC)
	return DateOf(next, time.UTC).Start(loc)
}

// Compare returns a negative number, zero or a positive number if d is before, on or after other.
func (d Date) Compare(other Date) int {
	return cmp.Or(
		cmp.Compare(d.year, other.year),
		cmp.Compare(d.month, other.month),
		cmp.Compare(d.day, other.day),
	)
}

// String returns the date as YYYY-MM-DD, "" for the zero value.
func (d Date) String() string {
	if d.IsZero() {
		return ""
	}
	return fmt.Sprintf("%04d-%02d-%02d", d.year, d.month, d.day)
}

// IsZero reports whether the date is not set.
func (d Date) IsZero() bool { return d == Date{} }

// Equal reports whether both are the same day.
func (d Date) Equal(other Date) bool { return d == other }

// MarshalJSON encodes the date as YYYY-MM-DD.
func (d Date) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON parses a string; null and "" give the zero value.
func (d *Date) UnmarshalJSON(raw []byte) error {
	return unmarshalText(raw, d, "date", ParseDate)
}

// FormatEnd returns a time to the minute with its zone, and midnight as 24:00 of the day that ends: 2026-11-30 24:00 CET.
// Projects are valid to the end of a day in the time zone of their department.
func FormatEnd(end time.Time, zone *time.Location) string {
	local := end.In(zone)
	if local.Hour() != 0 || local.Minute() != 0 {
		return local.Format("2006-01-02 15:04 MST")
	}
	return local.AddDate(0, 0, -1).Format(time.DateOnly) + " 24:00 " + local.Format("MST")
}
