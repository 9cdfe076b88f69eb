// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// GPUHold is a time in which a workload held GPUs, in whole seconds of policy time.
type GPUHold struct {
	// Milli is the GPU quota in thousandths of a GPU.
	Milli workload.Milli
	// From and To are the start and the end.
	From, To time.Time
	// Active and Idle are the parts of this time in which the GPUs were used and were not. The rest was
	// not measured.
	Active, Idle time.Duration
}

// SplitByDay splits the time by day in UTC. The sum of the parts equals the whole. Active and Idle of
// the parts are zero: they must be measured for each part.
func (u GPUHold) SplitByDay() []GPUHold {
	u.Active, u.Idle = 0, 0
	var parts []GPUHold
	for u.From.Before(u.To) {
		part := u
		if next := startOfDay(u.From).AddDate(0, 0, 1); next.Before(u.To) {
			part.To = next
		}
		parts = append(parts, part)
		u.From = part.To
	}
	return parts
}

// AddToDays returns the days of a clock with further GPU time, the oldest first. Each hold lies within one
// day. Days that are too old at the time are dropped; all that remain are at most
// [v1alpha1.MaxClockGPUDays].
func AddToDays(days []v1alpha1.ClockGPUDay, holds []GPUHold, at time.Time) []v1alpha1.ClockGPUDay {
	sums := map[string]v1alpha1.ClockGPUDay{}
	add := func(d v1alpha1.ClockGPUDay) {
		sum := sums[d.Date]
		sums[d.Date] = v1alpha1.ClockGPUDay{
			Date:                d.Date,
			GPUMilliSeconds:     AddMilliSeconds(sum.GPUMilliSeconds, d.GPUMilliSeconds),
			UsedGPUMilliSeconds: AddMilliSeconds(sum.UsedGPUMilliSeconds, d.UsedGPUMilliSeconds),
			IdleGPUMilliSeconds: AddMilliSeconds(sum.IdleGPUMilliSeconds, d.IdleGPUMilliSeconds),
		}
	}
	for _, d := range days {
		add(d)
	}
	for _, h := range holds {
		if requested := GPUMilliSeconds(h.Milli, h.To.Sub(h.From)); requested > 0 {
			add(v1alpha1.ClockGPUDay{
				Date: h.From.UTC().Format(time.DateOnly), GPUMilliSeconds: requested,
				UsedGPUMilliSeconds: GPUMilliSeconds(h.Milli, h.Active), IdleGPUMilliSeconds: GPUMilliSeconds(h.Milli, h.Idle),
			})
		}
	}
	oldest := OldestClockDay(at).Format(time.DateOnly)
	dates := slices.DeleteFunc(slices.Sorted(maps.Keys(sums)), func(date string) bool { return date < oldest })
	dates = dates[max(0, len(dates)-v1alpha1.MaxClockGPUDays):]
	var next []v1alpha1.ClockGPUDay
	for _, date := range dates {
		next = append(next, sums[date])
	}
	return next
}

// OldestClockDay returns the start of the oldest day that a clock keeps at a time.
func OldestClockDay(at time.Time) time.Time {
	return startOfDay(at).AddDate(0, 0, 1-v1alpha1.MaxClockGPUDays)
}

func startOfDay(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

// GPUMilliSeconds returns GPU time in thousandths of a GPU multiplied by seconds, between 0 and the largest
// int64.
func GPUMilliSeconds(milli workload.Milli, length time.Duration) int64 {
	seconds := int64(length / time.Second)
	if milli <= 0 || seconds <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(milli), uint64(seconds))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}

// AddMilliSeconds adds two amounts of at least 0. It returns the largest int64 if the sum overflows.
func AddMilliSeconds(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
