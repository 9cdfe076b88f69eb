// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"math"
	"math/bits"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Use is what ran evenly between two instants of policy time, in whole seconds.
type Use struct {
	// User is who made the workload.
	User string
	// Type is the workload's type.
	Type v1alpha1.WorkloadType
	// NodePool is where it ran.
	NodePool string
	// Milli is how much of GPUs it had.
	Milli workload.Milli
	// From and To are when; nothing is used where To is not after From.
	From, To time.Time
}

// MilliSeconds is the use in thousandths of a GPU times seconds; at most what a
// number can hold, and at least 0.
func (u Use) MilliSeconds() int64 {
	seconds := int64(u.To.Sub(u.From) / time.Second)
	if u.Milli <= 0 || seconds <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(u.Milli), uint64(seconds))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}

// cut is the use by month. Its parts are the whole: nothing between them is lost.
func (u Use) cut(zone *time.Location) map[month]Use {
	parts := map[month]Use{}
	for m := monthOf(u.From, zone); u.From.Before(u.To); m = m.add(1) {
		part := u
		if end := m.end(zone); end.Before(u.To) {
			part.To = end
		}
		parts[m] = part
		u.From = part.To
	}
	return parts
}

// plus adds two amounts of at least 0, and stops at the most that there can be.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
