// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending

import (
	"time"

	"sluice.dev/api/v1alpha1"
)

// quiet is how long GPUs are unused before that is recorded, and before an active
// workload's time stops. What computes in bursts is not written about each time.
const quiet = 10 * time.Minute

// count opens and closes the interval in which the running time counts.
func (d *deciding) count() {
	idleSince, inactive := d.inactive()
	counts := d.seen.Running && !inactive
	switch open := d.Status.RunningSince != nil; {
	case counts && !open:
		d.open()
	case !counts && open:
		end := d.now
		if inactive && d.seen.Running {
			end = idleSince
		}
		d.close(end)
	}
}

// pause notes that pods ended which ran without use: so long the workload did not
// stop, though its time stood still.
func (d *deciding) pause() {
	if !d.seen.Running && d.Status.PausedSince != nil && d.Status.IdleSince != nil {
		d.Status.PausedSince = stamp(d.now)
		d.used()
	}
}

// inactive tells whether the workload's time stands still although its pods run,
// and since when. What cannot be known counts as use.
func (d *deciding) inactive() (since time.Time, ok bool) {
	use := d.seen.Use
	if d.terms.Clock != v1alpha1.ClockActive || !d.seen.Running || !use.Known {
		return time.Time{}, false
	}
	return whole(use.LastActive), use.SampledAt.Sub(use.LastActive) >= quiet
}

func (d *deciding) open() {
	began := d.starts()
	if d.terms.Clock == v1alpha1.ClockActive && d.Status.PausedSince != nil {
		began = d.now
	}
	if s := d.Status.Stopped; s != nil {
		if s.Until != nil && !s.Until.After(began) {
			d.Status.Stopped, d.Released = nil, true
		} else {
			s.Times++
		}
	}
	d.began = true
	d.Status.RunningSince, d.Status.PausedSince = stamp(began), nil
	if d.Status.BeganAt == nil {
		d.Status.BeganAt = stamp(began)
	}
}

func (d *deciding) close(end time.Time) {
	end = later(end, d.Status.RunningSince.Time)
	d.Status.AccumulatedSeconds += seconds(end.Sub(d.Status.RunningSince.Time))
	d.Status.RunningSince, d.Status.PausedSince = nil, stamp(end)
}
