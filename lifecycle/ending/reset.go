// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending

import (
	"slices"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// extend records the extensions that were granted. One that is recorded already
// adds nothing, also after a crash before it was marked as applied.
func (d *deciding) extend() {
	for _, granted := range d.terms.Granted {
		if slices.ContainsFunc(d.Status.Extensions, func(e v1alpha1.ClockExtension) bool { return e.Name == granted.Name }) {
			continue
		}
		granted.At = *stamp(d.now)
		d.Status.Extensions = append(d.Status.Extensions, granted)
		if d.Status.Limit != nil {
			d.Status.Limit.InForce = lasting(d.Status.Limit.InForce.Length() + granted.By.Length())
		}
		if s := d.Status.Stopped; s != nil && extendable(s.Reason) {
			d.Status.Stopped, d.Released = nil, true
		}
	}
}

// extendable tells whether more time undoes a stop.
func extendable(reason v1alpha1.EndReason) bool {
	return reason == v1alpha1.EndMaxRuntime || reason == v1alpha1.EndIdle
}

// extended is the sum of the extensions.
func (d *deciding) extended() (sum time.Duration) {
	for _, extension := range d.Status.Extensions {
		sum += extension.By.Length()
	}
	return sum
}

// release ends a stop by a limit that no longer holds, and one after which the
// workload was started when it might be.
func (d *deciding) release() {
	s := d.Status.Stopped
	if s == nil || !extendable(s.Reason) {
		return
	}
	if d.terms.Spared || d.terms.DryRun || (s.Reason == v1alpha1.EndMaxRuntime && d.terms.MaxRuntime.IsZero()) {
		d.Status.Stopped, d.Released = nil, true
	}
}

// reset begins a workload's time anew where it was stopped long enough.
func (d *deciding) reset() {
	// What is active only now and then has not stopped while its pods run.
	if d.Status.RunningSince != nil || d.seen.Running && d.terms.Clock == v1alpha1.ClockActive {
		return
	}
	at, ok := d.resets()
	if !ok {
		return
	}
	if !d.seen.Running {
		d.at(at)
	}
	if at.After(d.starts()) {
		return
	}
	d.Reset = true
	d.Released = d.Released || d.Status.Stopped != nil
	d.Status.BeganAt, d.Status.AccumulatedSeconds = nil, 0
	d.Status.PausedSince, d.Status.Limit, d.Status.Deadline = nil, nil, nil
	d.Status.Leads, d.Status.Extensions, d.Status.Stopped = nil, nil, nil
	d.Status.IdleSince, d.Status.IdleUnknownSince = nil, nil
}

// resets is when a workload that does not run now begins anew; false where it has
// not run, and where somebody has to decide first.
func (d *deciding) resets() (time.Time, bool) {
	paused, stopped := d.Status.PausedSince, d.Status.Stopped
	switch {
	case paused == nil, stopped != nil && stopped.Until == nil:
		return time.Time{}, false
	case stopped != nil && stopped.Until.After(stopped.At.Time):
		return stopped.Until.Time, true
	}
	return paused.Add(d.terms.ResetAfter.Length()), true
}

// starts is when the present running began, or would if it did now.
func (d *deciding) starts() time.Time {
	if !d.seen.Running {
		return d.now
	}
	began := d.now
	if since := d.seen.Since; !since.IsZero() && since.Before(began) {
		began = whole(since)
	}
	if paused := d.Status.PausedSince; paused != nil {
		began = later(began, paused.Time)
	}
	return began
}

// longestDuration is the longest that a duration can say.
const longestDuration = 99999 * 24 * time.Hour

// lasting is a length, of a second at least, as a duration.
func lasting(length time.Duration) period.Duration {
	lasting, err := period.DurationOf(min(max(length, time.Second), longestDuration))
	if err != nil {
		return period.MustParseDuration("99999d")
	}
	return lasting
}
