// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending

import (
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
)

// idle finds since when the GPUs are unused. While that cannot be known the idle
// time stands still; it goes on from there unless there was use in the meantime.
func (d *deciding) idle() {
	use := d.seen.Use
	switch {
	case !d.seen.Running:
		d.used()
		return
	case !use.Known:
		if d.Status.IdleSince != nil && d.Status.IdleUnknownSince == nil {
			d.Status.IdleUnknownSince = stamp(d.now)
		}
		return
	}
	since := whole(use.LastActive)
	if recorded := d.Status.IdleSince; recorded != nil {
		if unknown := d.Status.IdleUnknownSince; unknown != nil && !since.After(unknown.Time) {
			since = later(since, recorded.Add(max(0, use.SampledAt.Sub(unknown.Time))))
		} else if !since.After(recorded.Time) {
			since = recorded.Time
		}
	}
	d.Status.IdleUnknownSince = nil
	d.idleFor = use.SampledAt.Sub(since)
	if d.idleFor < d.noticeable() {
		d.used()
		return
	}
	if recorded := d.Status.IdleSince; recorded != nil && since.After(recorded.Time) && whole(use.LastActive).After(recorded.Time) {
		d.forgetWarnings(v1alpha1.EndIdle)
	}
	d.Status.IdleSince = stamp(since)
}

// noticeable is how long a workload is unused before that is recorded.
func (d *deciding) noticeable() time.Duration {
	if d.terms.timed() {
		return min(quiet, d.terms.IdleTimeout.Length()/4)
	}
	return quiet
}

// used records that the GPUs are used, or that nothing runs that could be idle.
func (d *deciding) used() {
	d.Status.IdleSince, d.Status.IdleUnknownSince = nil, nil
	d.forgetWarnings(v1alpha1.EndIdle)
}

func (d *deciding) forgetWarnings(reason v1alpha1.EndReason) {
	d.Status.Leads = slices.DeleteFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool { return l.Reason == reason })
}

// announceIdle warns, at half the time-out, of the end for want of use. Where the
// warning came late, the end is put off.
func (d *deciding) announceIdle() *v1alpha1.ClockDeadline {
	timeout := d.terms.IdleTimeout.Length()
	if !d.terms.timed() || d.Status.IdleSince == nil || d.Status.IdleUnknownSince != nil || d.idleFor < timeout/2 {
		return nil
	}
	end := d.Status.IdleSince.Add(timeout)
	said := slices.IndexFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool { return l.Reason == v1alpha1.EndIdle })
	first := d.now
	if said >= 0 {
		first = d.Status.Leads[said].At.Time
	}
	if due := d.Status.IdleSince.Add(timeout / 2); first.Sub(due) > min(quiet, timeout/8) {
		end = later(end, first.Add(timeout/2))
	}
	if said < 0 {
		d.warn(Warning{Reason: v1alpha1.EndIdle, Lead: timeout / 2, DueAt: d.Status.IdleSince.Add(timeout / 2), Deadline: end})
	}
	return &v1alpha1.ClockDeadline{At: *stamp(end), Reason: v1alpha1.EndIdle, AnnouncedAt: stamp(first)}
}
