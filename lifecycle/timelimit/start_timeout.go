// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"slices"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// updateStartingTime updates the time since which pods are bound or admitted and none has started. Pods
// that are bound after a stop that is over start the workload again.
func (d *decision) updateStartingTime() {
	since := d.observed.StartingSince
	if d.observed.Running || since.IsZero() {
		d.Status.StartingSince = nil
		d.removeWarnings(v1alpha1.EndStartTimeout)
		return
	}
	if since.After(d.now) {
		since = d.now
	}
	recorded := d.Status.StartingSince
	if recorded != nil && truncateToSecond(since).After(recorded.Time) {
		d.removeWarnings(v1alpha1.EndStartTimeout) // other pods
	}
	d.Status.StartingSince = metaTime(since)
	switch s := d.Status.Stopped; {
	case s == nil:
	case s.Until != nil && s.Until.Before(d.Status.StartingSince):
		d.Status.Stopped, d.Released = nil, true
	case recorded == nil && s.At.Before(d.Status.StartingSince):
		s.Times, s.Retries = s.Times+1, 0
	}
}

// announceStartTimeout warns at half the start timeout and returns the deadline.
func (d *decision) announceStartTimeout() *v1alpha1.ClockDeadline {
	if !d.limits.hasStartTimeout() || d.Status.StartingSince == nil {
		return nil
	}
	since, timeout := d.Status.StartingSince.Time, d.limits.StartTimeout.Length()
	if due := since.Add(timeout / 2); due.After(d.now) {
		d.scheduleNext(due)
		return nil
	}
	deadline := d.announceTimeout(v1alpha1.EndStartTimeout, since, timeout)
	d.scheduleNext(deadline.At.Time)
	return deadline
}

// announceTimeout warns at half a timeout and returns the deadline. It postpones the
// deadline if the warning is late.
func (d *decision) announceTimeout(reason v1alpha1.EndReason, since time.Time, timeout time.Duration) *v1alpha1.ClockDeadline {
	end, due := since.Add(timeout), since.Add(timeout/2)
	warned := slices.IndexFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool { return l.Reason == reason })
	announcedAt := d.now
	if warned >= 0 {
		announcedAt = d.Status.Leads[warned].At.Time
	}
	if announcedAt.Sub(due) > min(idleGracePeriod, timeout/8) {
		end = policytime.Later(end, announcedAt.Add(timeout/2))
	}
	if warned < 0 {
		d.recordWarning(Warning{Reason: reason, Lead: timeout / 2, DueAt: due, Deadline: end})
	}
	return d.holdTimeout(&v1alpha1.ClockDeadline{At: *metaTime(end), Reason: reason, AnnouncedAt: metaTime(announcedAt)})
}
