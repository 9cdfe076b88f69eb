// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/timelimit"
)

// Use is a constant usage between two instants of policy time, in whole seconds.
type Use struct {
	// User is the user who created the workload.
	User string
	// Type is the workload's type.
	Type v1alpha1.WorkloadType
	// NodePool is the node pool of the pod.
	NodePool string
	// Milli is the GPU quota in thousandths of a GPU.
	Milli workload.Milli
	// From and To are the start and the end. The usage is 0 if To is not after From.
	From, To time.Time
	// Active and Idle are the parts of this time in which the pod used its GPUs and did not. The rest
	// was not measured.
	Active, Idle time.Duration
}

// MilliSeconds returns the usage in thousandths of a GPU multiplied by seconds, between 0 and the
// largest int64.
func (u Use) MilliSeconds() int64 { return u.milliSeconds(u.To.Sub(u.From)) }

func (u Use) amounts() amounts {
	return amounts{requested: u.MilliSeconds(), used: u.milliSeconds(u.Active), idle: u.milliSeconds(u.Idle)}
}

func (u Use) milliSeconds(length time.Duration) int64 {
	return timelimit.GPUMilliSeconds(u.Milli, length)
}

// splitByMonth splits the usage by month. The sum of the parts equals the whole.
func (u Use) splitByMonth(zone *time.Location) map[month]Use {
	parts := map[month]Use{}
	for m := monthOf(u.From, zone); u.From.Before(u.To); m = m.addMonths(1) {
		part := u
		if end := m.end(zone); end.Before(u.To) {
			part.To = end
		}
		parts[m] = part
		u.From = part.To
	}
	return parts
}

// amounts are amounts of usage, in thousandths of a GPU multiplied by seconds.
type amounts struct{ requested, used, idle int64 }

func (a amounts) add(b amounts) amounts {
	return amounts{
		timelimit.AddMilliSeconds(a.requested, b.requested), timelimit.AddMilliSeconds(a.used, b.used),
		timelimit.AddMilliSeconds(a.idle, b.idle),
	}
}

// month is a calendar month. Its start and end depend on a time zone.
type month struct {
	year  int
	month time.Month
}

// monthLayout is the format of a month.
const monthLayout = "2006-01"

// monthOf returns the month of an instant in zone.
func monthOf(at time.Time, zone *time.Location) month {
	local := at.In(zone)
	m := month{local.Year(), local.Month()}
	// If the clocks are set back over midnight, the end of a month occurs twice.
	switch {
	case at.Before(m.start(zone)):
		return m.addMonths(-1)
	case !at.Before(m.end(zone)):
		return m.addMonths(1)
	}
	return m
}

// addMonths returns the month that is the given number of months later.
func (m month) addMonths(months int) month {
	at := time.Date(m.year, m.month+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
	return month{at.Year(), at.Month()}
}

// start returns the first instant of the month.
func (m month) start(zone *time.Location) time.Time {
	at := time.Date(m.year, m.month, 1, 0, 0, 0, 0, zone)
	if at.Day() != 1 { // midnight does not exist: the month starts after the gap
		_, at = at.ZoneBounds()
	}
	return at.UTC()
}

// end returns the first instant after the month.
func (m month) end(zone *time.Location) time.Time { return m.addMonths(1).start(zone) }

func (m month) before(other month) bool {
	return m.year < other.year || m.year == other.year && m.month < other.month
}

// String returns the month as YYYY-MM.
func (m month) String() string {
	return time.Date(m.year, m.month, 1, 0, 0, 0, 0, time.UTC).Format(monthLayout)
}
