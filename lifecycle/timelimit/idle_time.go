// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"slices"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// updateIdleTime updates the time since which the GPUs are unused. Idle time pauses
// while utilization is unknown, and continues after that unless the GPUs were used
// meanwhile.
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
			since = policytime.Later(since, recorded.Add(max(0, use.SampledAt.Sub(unknown.Time))))
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

// idleRecordThreshold returns the idle time above which the status records idleness.
func (d *decision) idleRecordThreshold() time.Duration {
	if d.limits.hasIdleTimeout() {
		return min(idleGracePeriod, d.limits.IdleTimeout.Length()/4)
	}
	return idleGracePeriod
}

// resetIdleTime records that the GPUs are used, or that no pod runs.
func (d *decision) resetIdleTime() {
	d.Status.IdleSince, d.Status.IdleUnknownSince = nil, nil
	d.removeWarnings(v1alpha1.EndIdle)
}

func (d *decision) removeWarnings(reason v1alpha1.EndReason) {
	d.Status.Leads = slices.DeleteFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool { return l.Reason == reason })
}

// announceIdleTimeout warns at half the idle timeout and returns the deadline.
func (d *decision) announceIdleTimeout() *v1alpha1.ClockDeadline {
	timeout := d.limits.IdleTimeout.Length()
	if !d.limits.hasIdleTimeout() || d.Status.IdleSince == nil || d.Status.IdleUnknownSince != nil || d.idleDuration < timeout/2 {
		return nil
	}
	return d.announceTimeout(v1alpha1.EndIdle, d.Status.IdleSince.Time, timeout)
}
