// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"slices"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// idleGracePeriod is how long GPUs are unused before that is recorded, and before an active
// workload's time stops. What computes in bursts is not written about each time.
const idleGracePeriod = 10 * time.Minute

// updateRunningTime opens and closes the interval in which the running time counts.
func (d *decision) updateRunningTime() {
	idleSince, inactive := d.inactiveSince()
	counts := d.observed.Running && !inactive
	switch open := d.Status.RunningSince != nil; {
	case counts && !open:
		d.openInterval()
	case !counts && open:
		end := d.now
		if inactive && d.observed.Running {
			end = idleSince
		}
		d.closeInterval(end)
	}
}

// recordPause notes that pods ended which ran without use: so long the workload did not
// stop, though its time stood still.
func (d *decision) recordPause() {
	if !d.observed.Running && d.Status.PausedSince != nil && d.Status.IdleSince != nil {
		d.Status.PausedSince = metaTime(d.now)
		d.resetIdleTime()
	}
}

// inactiveSince tells whether the workload's time stands still although its pods run,
// and since when. What cannot be known counts as use.
func (d *decision) inactiveSince() (since time.Time, ok bool) {
	use := d.observed.Utilization
	if d.limits.Clock != v1alpha1.ClockActive || !d.observed.Running || !use.Known {
		return time.Time{}, false
	}
	return truncateToSecond(use.LastActive), use.SampledAt.Sub(use.LastActive) >= idleGracePeriod
}

func (d *decision) openInterval() {
	began := d.startTime()
	if d.limits.Clock == v1alpha1.ClockActive && d.Status.PausedSince != nil {
		began = d.now
	}
	if s := d.Status.Stopped; s != nil {
		if s.Until != nil && !s.Until.After(began) {
			d.Status.Stopped, d.Released = nil, true
		} else {
			s.Times++
		}
	}
	d.intervalOpened = true
	d.Status.RunningSince, d.Status.PausedSince = metaTime(began), nil
	if d.Status.StartedAt == nil {
		d.Status.StartedAt = metaTime(began)
	}
}

func (d *decision) closeInterval(end time.Time) {
	end = laterOf(end, d.Status.RunningSince.Time)
	d.Status.AccumulatedSeconds += wholeSeconds(end.Sub(d.Status.RunningSince.Time))
	d.Status.RunningSince, d.Status.PausedSince = nil, metaTime(end)
}

// recordExtensions records the extensions that were granted. One that is recorded already
// adds nothing, also after a crash before it was marked as applied.
func (d *decision) recordExtensions() {
	for _, granted := range d.limits.GrantedExtensions {
		if slices.ContainsFunc(d.Status.Extensions, func(e v1alpha1.ClockExtension) bool { return e.Name == granted.Name }) {
			continue
		}
		granted.At = *metaTime(d.now)
		d.Status.Extensions = append(d.Status.Extensions, granted)
		if d.Status.Limit != nil {
			d.Status.Limit.InForce = toDuration(d.Status.Limit.InForce.Length() + granted.By.Length())
		}
		if s := d.Status.Stopped; s != nil && isExtendable(s.Reason) {
			d.Status.Stopped, d.Released = nil, true
		}
	}
}

// isExtendable tells whether more time undoes a stop.
func isExtendable(reason v1alpha1.EndReason) bool {
	return reason == v1alpha1.EndMaxRuntime || reason == v1alpha1.EndIdle
}

// totalExtension is the sum of the extensions.
func (d *decision) totalExtension() (sum time.Duration) {
	for _, extension := range d.Status.Extensions {
		sum += extension.By.Length()
	}
	return sum
}

// releaseStop ends a stop by a limit that no longer holds, and one after which the
// workload was started when it might be.
func (d *decision) releaseStop() {
	s := d.Status.Stopped
	if s == nil || !isExtendable(s.Reason) {
		return
	}
	if d.limits.Exempt || d.limits.DryRun || (s.Reason == v1alpha1.EndMaxRuntime && d.limits.MaxRuntime.IsZero()) {
		d.Status.Stopped, d.Released = nil, true
	}
}

// resetClock begins a workload's time anew where it was stopped long enough.
func (d *decision) resetClock() {
	// What is active only now and then has not stopped while its pods run.
	if d.Status.RunningSince != nil || d.observed.Running && d.limits.Clock == v1alpha1.ClockActive {
		return
	}
	at, ok := d.resetTime()
	if !ok {
		return
	}
	if !d.observed.Running {
		d.scheduleNext(at)
	}
	if at.After(d.startTime()) {
		return
	}
	d.Reset = true
	d.Released = d.Released || d.Status.Stopped != nil
	d.Status.StartedAt, d.Status.AccumulatedSeconds = nil, 0
	d.Status.PausedSince, d.Status.Limit, d.Status.Deadline = nil, nil, nil
	d.Status.Leads, d.Status.Extensions, d.Status.Stopped = nil, nil, nil
	d.Status.IdleSince, d.Status.IdleUnknownSince = nil, nil
}

// resetTime is when a workload that does not run now begins anew; false where it has
// not run, and where somebody has to decide first.
func (d *decision) resetTime() (time.Time, bool) {
	paused, stopped := d.Status.PausedSince, d.Status.Stopped
	switch {
	case paused == nil, stopped != nil && stopped.Until == nil:
		return time.Time{}, false
	case stopped != nil && stopped.Until.After(stopped.At.Time):
		return stopped.Until.Time, true
	}
	return paused.Add(d.limits.ResetAfter.Length()), true
}

// startTime is when the present running began, or would if it did now.
func (d *decision) startTime() time.Time {
	if !d.observed.Running {
		return d.now
	}
	began := d.now
	if since := d.observed.RunningSince; !since.IsZero() && since.Before(began) {
		began = truncateToSecond(since)
	}
	if paused := d.Status.PausedSince; paused != nil {
		began = laterOf(began, paused.Time)
	}
	return began
}

// maxDuration is the longest that a duration can say.
const maxDuration = 99999 * 24 * time.Hour

// toDuration is a length, of a second at least, as a duration.
func toDuration(length time.Duration) period.Duration {
	lasting, err := period.DurationOf(min(max(length, time.Second), maxDuration))
	if err != nil {
		return period.MustParseDuration("99999d")
	}
	return lasting
}

// InheritStatus is the record with which a workload begins that takes another's place:
// the same template under another name, while the first one's time has not begun
// anew. What is known of the other's pods and use does not come along.
func InheritStatus(from v1alpha1.WorkloadClockStatus) v1alpha1.WorkloadClockStatus {
	var to v1alpha1.WorkloadClockStatus
	from.DeepCopyInto(&to)
	to.RootUID, to.RunningSince, to.Deadline, to.Local = "", nil, nil, nil
	to.IdleSince, to.IdleUnknownSince, to.Conditions = nil, nil, nil
	if to.PausedSince == nil {
		to.PausedSince = from.RunningSince
	}
	return to
}
