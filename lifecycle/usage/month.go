// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"time"
)

// month is a month of a calendar, in some time zone.
type month struct {
	year int
	of   time.Month
}

// monthForm is how a month is written.
const monthForm = "2006-01"

// monthOf is the month in which an instant lies in zone.
func monthOf(at time.Time, zone *time.Location) month {
	local := at.In(zone)
	m := month{local.Year(), local.Month()}
	// Where the clocks are set back over midnight, the end of a month occurs twice.
	switch {
	case at.Before(m.begin(zone)):
		return m.add(-1)
	case !at.Before(m.end(zone)):
		return m.add(1)
	}
	return m
}

// add is the month that many months later.
func (m month) add(months int) month {
	at := time.Date(m.year, m.of+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
	return month{at.Year(), at.Month()}
}

// begin is the first instant of the month.
func (m month) begin(zone *time.Location) time.Time {
	at := time.Date(m.year, m.of, 1, 0, 0, 0, 0, zone)
	if at.Day() != 1 { // there is no such midnight: the month begins after the gap
		_, at = at.ZoneBounds()
	}
	return at.UTC()
}

// end is the first instant after the month.
func (m month) end(zone *time.Location) time.Time { return m.add(1).begin(zone) }

func (m month) before(other month) bool {
	return m.year < other.year || m.year == other.year && m.of < other.of
}

// String is YYYY-MM.
func (m month) String() string {
	return time.Date(m.year, m.of, 1, 0, 0, 0, 0, time.UTC).Format(monthForm)
}
