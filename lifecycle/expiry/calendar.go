// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"slices"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// Calendar counts notice: time outside a department's holidays.
type Calendar struct {
	// holidays are in order, and neither overlap nor touch.
	holidays []interval
}

// interval is the time from start up to and without end.
type interval struct{ start, end time.Time }

// NewCalendar returns the calendar of a department in its time zone. Holidays that touch are one.
func NewCalendar(holidays []v1alpha1.Holiday, zone *time.Location) Calendar {
	var c Calendar
	for _, h := range slices.SortedFunc(slices.Values(holidays), func(a, b v1alpha1.Holiday) int { return a.From.Compare(b.From) }) {
		next := interval{h.From.Start(zone), h.To.End(zone)}
		if last := len(c.holidays) - 1; last >= 0 && !next.start.After(c.holidays[last].end) {
			c.holidays[last].end = policytime.Later(c.holidays[last].end, next.end)
			continue
		}
		c.holidays = append(c.holidays, next)
	}
	return c
}

// Postpone returns t, or the end of the holidays in which t is.
func (c Calendar) Postpone(t time.Time) time.Time {
	for _, h := range c.holidays {
		if !t.Before(h.start) && t.Before(h.end) {
			return h.end
		}
	}
	return t
}

// Before returns the latest time that is at least a notice before t, without holidays.
func (c Calendar) Before(t time.Time, notice time.Duration) time.Time {
	for _, h := range slices.Backward(c.holidays) {
		if !h.start.Before(t) {
			continue
		}
		if h.end.Before(t) {
			between := t.Sub(h.end)
			if between >= notice {
				break
			}
			notice -= between // the rest of the notice is before the holidays
		}
		t = h.start
	}
	return t.Add(-notice)
}

// After returns the earliest time that is at least a notice after t, without holidays.
func (c Calendar) After(t time.Time, notice time.Duration) time.Time {
	for _, h := range c.holidays {
		if !t.Before(h.end) {
			continue
		}
		if t.Before(h.start) {
			between := h.start.Sub(t)
			if between >= notice {
				break
			}
			notice -= between
		}
		t = h.end
	}
	return t.Add(notice)
}
