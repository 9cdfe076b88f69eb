// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending

import (
	"time"

	"sluice.dev/api/v1alpha1"
)

// stop ends what is due. What was stopped and runs is stopped again.
func (d *deciding) stop() {
	if !d.seen.Running {
		return
	}
	if d.stopHolds() {
		d.Stop = true
		if until := d.Status.Stopped.Until; until != nil {
			d.at(until.Time)
		}
		return
	}
	end := d.Status.Deadline
	if end == nil || d.reached(end.Reason).Before(end.At.Time) {
		return
	}
	stopped := &v1alpha1.ClockStop{At: *stamp(d.now), Reason: end.Reason, Until: stamp(d.now), Times: 1}
	if end.Reason == v1alpha1.EndMaxRuntime {
		stopped.Until = stamp(d.now.Add(d.terms.ResetAfter.Length()))
	}
	if before := d.Status.Stopped; before != nil {
		stopped.Times += before.Times
	}
	d.Status.Stopped, d.Status.Deadline = stopped, nil
	d.Stop, d.Stopped = true, true
	d.Next = time.Time{}
	d.at(stopped.Until.Time)
}

// reached is the instant up to which the time of an end has come: for idleness
// that of the samples, since what came after them is not known.
func (d *deciding) reached(reason v1alpha1.EndReason) time.Time {
	if reason == v1alpha1.EndIdle {
		return d.seen.Use.SampledAt
	}
	return d.now
}

// stopHolds tells whether the workload was stopped and may not run, or still runs
// on since then: what is being stopped is stopped once.
func (d *deciding) stopHolds() bool {
	s := d.Status.Stopped
	if s == nil {
		return false
	}
	outlives := d.seen.Running && !d.began && !d.seen.Since.After(s.At.Time)
	return s.Until == nil || d.now.Before(s.Until.Time) || outlives
}

// dryRun tells what would be stopped if this were none.
func (d *deciding) dryRun() {
	if !d.terms.DryRun || d.terms.Spared || !d.seen.Running {
		return
	}
	limit, timeout := d.terms.MaxRuntime.Length()+d.extended(), d.terms.IdleTimeout.Length()
	if !d.terms.MaxRuntime.IsZero() && d.Status.RunningSince != nil {
		if d.ran() >= limit {
			d.WouldStop = v1alpha1.EndMaxRuntime
			return
		}
		d.at(d.now.Add(limit - d.ran()))
	}
	if timeout > 0 && d.idleFor >= timeout {
		d.WouldStop = v1alpha1.EndIdle
	}
}
