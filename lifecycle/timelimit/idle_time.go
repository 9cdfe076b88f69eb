// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
)

// updateIdleTime finds since when the GPUs are unused. While that cannot be known the idle
// time stands still; it goes on from there unless there was use in the meantime.
func (d *decision) updateIdleTime() {
	use := d.observed.Utilization
	switch {
	case !d.observed.Running:
		d.resetIdleTime()
		return
	case !use.Known:
		if d.Status.IdleSince != nil && d.Status.IdleUnknownSince == nil {
			d.Status.IdleUnknownSince = metaTime(d.now)
		}
		return
	}
	since := truncateToSecond(use.LastActive)
	if recorded := d.Status.IdleSince; recorded != nil {
		if unknown := d.Status.IdleUnknownSince; unknown != nil && !since.After(unknown.Time) {
			since = laterOf(since, recorded.Add(max(0, use.SampledAt.Sub(unknown.Time))))
		} else if !since.After(recorded.Time) {
			since = recorded.Time
		}
	}
	d.Status.IdleUnknownSince = nil
	d.idleDuration = use.SampledAt.Sub(since)
	if d.idleDuration < d.idleRecordThreshold() {
		d.resetIdleTime()
		return
	}
	if recorded := d.Status.IdleSince; recorded != nil && since.After(recorded.Time) && truncateToSecond(use.LastActive).After(recorded.Time) {
		d.removeWarnings(v1alpha1.EndIdle)
	}
	d.Status.IdleSince = metaTime(since)
}

// idleRecordThreshold is how long a workload is unused before that is recorded.
func (d *decision) idleRecordThreshold() time.Duration {
	if d.limits.hasIdleTimeout() {
		return min(idleGracePeriod, d.limits.IdleTimeout.Length()/4)
	}
	return idleGracePeriod
}

// resetIdleTime records that the GPUs are used, or that nothing runs that could be idle.
func (d *decision) resetIdleTime() {
	d.Status.IdleSince, d.Status.IdleUnknownSince = nil, nil
	d.removeWarnings(v1alpha1.EndIdle)
}

func (d *decision) removeWarnings(reason v1alpha1.EndReason) {
	d.Status.Leads = slices.DeleteFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool { return l.Reason == reason })
}

// announceIdleTimeout warns, at half the time-out, of the end for want of use. Where the
// warning came late, the end is put off.
func (d *decision) announceIdleTimeout() *v1alpha1.ClockDeadline {
	timeout := d.limits.IdleTimeout.Length()
	if !d.limits.hasIdleTimeout() || d.Status.IdleSince == nil || d.Status.IdleUnknownSince != nil || d.idleDuration < timeout/2 {
		return nil
	}
	end := d.Status.IdleSince.Add(timeout)
	said := slices.IndexFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool { return l.Reason == v1alpha1.EndIdle })
	first := d.now
	if said >= 0 {
		first = d.Status.Leads[said].At.Time
	}
	if due := d.Status.IdleSince.Add(timeout / 2); first.Sub(due) > min(idleGracePeriod, timeout/8) {
		end = laterOf(end, first.Add(timeout/2))
	}
	if said < 0 {
		d.recordWarning(Warning{Reason: v1alpha1.EndIdle, Lead: timeout / 2, DueAt: d.Status.IdleSince.Add(timeout / 2), Deadline: end})
	}
	return &v1alpha1.ClockDeadline{At: *metaTime(end), Reason: v1alpha1.EndIdle, AnnouncedAt: metaTime(first)}
}
