// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"slices"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// idleGracePeriod is the idle time before the status records idleness and before an active
// clock pauses. It keeps workloads that compute in bursts from causing a write per burst.
const idleGracePeriod = 10 * time.Minute

// updateRunningTime opens or closes the interval in which running time counts.
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

// recordPause starts the pause again when the pods of an idle active clock end: until then
// the workload had not stopped, although its clock did not run.
func (d *decision) recordPause() {
	if !d.observed.Running && d.Status.PausedSince != nil && d.Status.IdleSince != nil {
		d.Status.PausedSince = metaTime(d.now)
		d.resetIdleTime()
	}
}

// recordEnd records that the workload finished by itself, or that it does not exist.
func (d *decision) recordEnd() {
	switch {
	case d.observed.Running || !d.observed.StartingSince.IsZero() || d.observed.endsWithProject():
		d.Status.MissingSince = nil
		return
	case d.observed.Completed && d.Status.CompletedAt == nil:
		d.Status.CompletedAt = metaTime(d.now)
	}
	if d.observed.Missing && d.Status.MissingSince == nil {
		d.Status.MissingSince = metaTime(d.now)
	}
}

// inactiveSince reports whether and since when an active clock pauses although pods run.
// Unknown utilization counts as use.
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
		} else if d.Status.StartingSince == nil { // else it was counted when its pods were bound
			s.Times, s.Retries = s.Times+1, 0
		}
	}
	d.intervalOpened = true
	d.Status.RunningSince, d.Status.PausedSince = metaTime(began), nil
	d.Status.CompletedAt, d.Status.Successor = nil, ""
	if d.Status.StartedAt == nil {
		d.Status.StartedAt = metaTime(began)
	}
}

func (d *decision) closeInterval(end time.Time) {
	end = policytime.Later(end, d.Status.RunningSince.Time)
	d.Status.AccumulatedSeconds += wholeSeconds(end.Sub(d.Status.RunningSince.Time))
	d.Status.LastRunningSince, d.Status.RunningSince, d.Status.PausedSince = d.Status.RunningSince, nil, metaTime(end)
}

// recordExtensions adds granted extensions to the status. It skips those that the status
// already holds, which happens after a crash before they were marked as applied.
func (d *decision) recordExtensions() {
	for _, granted := range d.limits.GrantedExtensions {
		if slices.ContainsFunc(d.Status.Extensions, func(e v1alpha1.ClockExtension) bool { return e.Name == granted.Name }) {
			continue
		}
		granted.At = *metaTime(d.now)
		d.Status.Extensions = append(d.Status.Extensions, granted)
		if d.Status.Limit != nil {
			d.Status.Limit.InForce = toDuration(d.Status.Limit.InForce.Length() + granted.By.Length())
			if held := d.Status.Limit.HeldFrom; held != nil {
				*held = toDuration(held.Length() + granted.By.Length())
			}
		}
		if s := d.Status.Stopped; s != nil && isExtendable(s.Reason) {
			d.Status.Stopped, d.Released = nil, true
		}
	}
}

// isExtendable reports whether an extension ends a stop for this reason.
func isExtendable(reason v1alpha1.EndReason) bool {
	return reason == v1alpha1.EndMaxRuntime || reason == v1alpha1.EndIdle
}

// totalExtension returns the sum of all extensions.
func (d *decision) totalExtension() (sum time.Duration) {
	for _, extension := range d.Status.Extensions {
		sum += extension.By.Length()
	}
	return sum
}

// releaseStop ends a stop if its limit is no longer in force, or if its project was renewed.
func (d *decision) releaseStop() {
	s := d.Status.Stopped
	if s != nil && s.Reason == v1alpha1.EndProjectSuspended && d.observed.ProjectEnd == "" {
		d.Status.Stopped, d.Released = nil, true
		return
	}
	if s == nil || !isExtendable(s.Reason) {
		return
	}
	if d.limits.Exempt || d.limits.DryRun || (s.Reason == v1alpha1.EndMaxRuntime && d.limits.MaxRuntime.IsZero()) {
		d.Status.Stopped, d.Released = nil, true
	}
}

// resetClock resets the running time of a workload that has been stopped long enough. The stop of
// a suspended project stays until its renewal.
func (d *decision) resetClock() {
	if s := d.Status.Stopped; s != nil && s.Reason == v1alpha1.EndProjectSuspended && d.observed.ProjectEnd != "" {
		return
	}
	// An active clock pauses while its pods are idle. That is no stop.
	if d.Status.RunningSince != nil || d.observed.Running && d.limits.Clock == v1alpha1.ClockActive {
		return
	}
	at, ok := resetTime(&d.Status, d.limits.ResetAfter.Length())
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
	d.Status.PausedSince, d.Status.LastRunningSince, d.Status.Limit, d.Status.Deadline = nil, nil, nil, nil
	d.Status.Leads, d.Status.Extensions, d.Status.Stopped = nil, nil, nil
	d.Status.IdleSince, d.Status.IdleUnknownSince = nil, nil
	d.Status.InheritedFrom, d.Status.Successor = "", ""
}

// resetTime returns when the clock of a workload that is not running resets. It returns
// false if the workload has not run, or if its stop has no end.
func resetTime(s *v1alpha1.WorkloadClockStatus, resetAfter time.Duration) (time.Time, bool) {
	paused, stopped := s.PausedSince, s.Stopped
	switch {
	case paused == nil, stopped != nil && stopped.Until == nil:
		return time.Time{}, false
	case stopped != nil && stopped.Until.After(stopped.At.Time):
		return stopped.Until.Time, true
	}
	return paused.Add(resetAfter), true
}

// startTime returns when the current run began, or now if nothing runs.
func (d *decision) startTime() time.Time {
	if !d.observed.Running {
		return d.now
	}
	began := d.now
	if since := d.observed.RunningSince; !since.IsZero() && since.Before(began) {
		began = truncateToSecond(since)
	}
	if paused := d.Status.PausedSince; paused != nil {
		began = policytime.Later(began, paused.Time)
	}
	return began
}

// maxDuration is the longest length that period.Duration can express.
const maxDuration = 99999 * 24 * time.Hour

// toDuration converts a length, clamped to one second and maxDuration.
func toDuration(length time.Duration) period.Duration {
	duration, err := period.DurationOf(min(max(length, time.Second), maxDuration))
	if err != nil {
		return period.MustParseDuration("99999d")
	}
	return duration
}
