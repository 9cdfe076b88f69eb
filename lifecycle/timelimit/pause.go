// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"slices"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// A pause of Sluice holds the ends of workloads; their clocks count on. What would end before the
// end of the pause ends the shortest lead after it. For the runtime limit the held end is a longer
// limit in force, so that it has warnings of its own.

// isPaused reports whether a pause is in force.
func (d *decision) isPaused() bool { return d.now.Before(d.observed.PausedUntil) }

// endAfterPause returns the earliest end of what would end before the end of the pause.
func (d *decision) endAfterPause() time.Time {
	return truncateToSecond(d.observed.PausedUntil).Add(d.limits.shortestLead())
}

// holdsStop reports whether a pause holds the stops of the workload, those included that began
// before and are to be repeated. The deletion of a project by its people is not held.
func (d *decision) holdsStop() bool {
	if !d.isPaused() || d.observed.ProjectEnd == v1alpha1.EndProjectDeleted {
		return false
	}
	d.scheduleNext(d.observed.PausedUntil)
	return true
}

// isHeldAfterPause reports whether the shortest lead after a pause is not over.
func (d *decision) isHeldAfterPause() bool {
	if d.observed.PausedUntil.IsZero() || !d.now.Before(d.endAfterPause()) {
		return false
	}
	d.scheduleNext(d.endAfterPause())
	return true
}

// releaseHeldLimit restores the limit in force without a pause, and returns the one that a pause
// prolonged, or 0.
func (d *decision) releaseHeldLimit() (held time.Duration) {
	limit := d.Status.Limit
	if limit == nil || limit.HeldFrom == nil {
		return 0
	}
	held = limit.InForce.Length()
	// Extensions were added to the prolonged limit.
	limit.InForce, limit.HeldFrom = *limit.HeldFrom, nil
	return held
}

// holdLimit prolongs the limit of a running workload that would end before the end of the pause.
// After the pause the workload keeps the shortest lead, also if the pause ended early.
func (d *decision) holdLimit(held time.Duration) {
	limit := d.Status.Limit
	if limit == nil {
		return
	}
	base, inForce := limit.InForce, limit.InForce.Length()
	if ran := d.runningTime(); d.Status.RunningSince == nil {
		inForce = max(inForce, held)
	} else {
		if held > 0 && !d.isPaused() {
			inForce = min(held, max(inForce, ran+d.limits.shortestLead()))
		}
		if until := d.observed.PausedUntil; d.now.Add(inForce - ran).Before(truncateToSecond(until)) {
			inForce = ran + d.endAfterPause().Sub(d.now)
		}
	}
	if inForce > base.Length() {
		limit.InForce, limit.HeldFrom = toDuration(inForce), &base
	}
}

// holdTimeout returns the end of an idle or starting workload that would end before the end of the
// pause, and warns again when the pause ends.
func (d *decision) holdTimeout(deadline *v1alpha1.ClockDeadline) *v1alpha1.ClockDeadline {
	until := truncateToSecond(d.observed.PausedUntil)
	if d.observed.PausedUntil.IsZero() || !deadline.At.Time.Before(until) {
		return d.keepHeldTimeout(deadline)
	}
	held, lead := *deadline, d.limits.shortestLead()
	end := d.endAfterPause()
	held.HeldFrom = &deadline.At
	if !d.isPaused() {
		warned := slices.IndexFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool {
			return l.Reason == deadline.Reason && !l.At.Time.Before(until)
		})
		announcedAt := d.now
		if warned >= 0 {
			announcedAt = d.Status.Leads[warned].At.Time
		}
		end = policytime.Later(end, announcedAt.Add(lead))
		if warned < 0 {
			d.recordWarning(Warning{Reason: deadline.Reason, Lead: lead, DueAt: until, Deadline: end})
		}
	}
	held.At = *metaTime(end)
	d.scheduleNext(until)
	return &held
}

// keepHeldTimeout returns the shortest lead from now for a timeout that a pause held, if the record
// of the pause is lost or names another end: the former end was announced to the users.
func (d *decision) keepHeldTimeout(deadline *v1alpha1.ClockDeadline) *v1alpha1.ClockDeadline {
	former := d.formerDeadline
	if former == nil || former.HeldFrom == nil || former.Reason != deadline.Reason {
		return deadline
	}
	lead, end := d.limits.shortestLead(), former.At.Time
	if fromNow := metaTime(d.now.Add(lead)).Time; fromNow.Before(end) {
		end = fromNow
	}
	if !end.After(deadline.At.Time) {
		return deadline
	}
	held := *deadline
	held.HeldFrom, held.At = &deadline.At, *metaTime(end)
	if end.Before(former.At.Time) {
		d.recordWarning(Warning{Reason: deadline.Reason, Lead: lead, DueAt: d.now, Deadline: end})
	}
	return &held
}
