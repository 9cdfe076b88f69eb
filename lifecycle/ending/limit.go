// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending

import (
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// limit finds how long the workload may run. A limit that is cut, or comes, while
// the workload runs leaves the longest lead, or what was left if that is less.
func (d *deciding) limit() {
	had, now := d.Status.Limit, d.terms.MaxRuntime
	if !d.terms.limited() {
		d.Status.Limit = nil
		return
	}
	// What the pods asked for is known only while there are some.
	if had != nil && !d.seen.Running {
		return
	}
	whole := now.Length() + d.extended()
	inForce := d.said(now, whole)
	switch {
	case d.fresh():
	case had == nil:
		inForce = d.atLeast(inForce, d.ran()+d.terms.longest())
	case had.Configured.Equal(now):
		return
	default:
		inForce = d.atLeast(inForce, min(d.ran()+d.terms.longest(), had.InForce.Length()))
	}
	d.Status.Limit = &v1alpha1.ClockLimit{Configured: now, InForce: inForce}
}

// fresh tells whether the workload's time only begins with this decision.
func (d *deciding) fresh() bool {
	return d.Status.AccumulatedSeconds == 0 && (d.Status.RunningSince == nil || d.began)
}

// said is a length in the words of a duration that is as long, where it is.
func (d *deciding) said(duration period.Duration, length time.Duration) period.Duration {
	if duration.Length() == length {
		return duration
	}
	return lasting(length)
}

func (d *deciding) atLeast(duration period.Duration, length time.Duration) period.Duration {
	if duration.Length() >= length {
		return duration
	}
	return lasting(length)
}
