// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

const (
	// maxRequestHold is the longest time for which a request of a renewal holds a deadline.
	maxRequestHold = 30 * 24 * time.Hour
	// maxUnsent is the time after which a warning that was not sent to any owner goes to the department's contacts.
	maxUnsent = 3 * 24 * time.Hour
	// newProjectAge is the age up to which a project without a record counts as new, and not as restored without its status.
	newProjectAge = 24 * time.Hour
)

// Decide returns the decision for a project. Called again with the record that it returned, it changes nothing.
func Decide(now time.Time, record Record, terms Terms, observed Observation) Decision {
	d := decider{Decision: Decision{Record: record}, now: now.UTC().Truncate(time.Second), terms: &terms, observed: &observed}
	r := &d.Record
	if r.Phase == v1alpha1.ProjectDeleting {
		if r.Approval.isGiven() {
			return d.Decision // nothing brings it back
		}
		*r = Record{} // an object that was created again with its former status
	}
	if terms.Validity.IsZero() || observed.Exempt {
		*r = Record{Phase: v1alpha1.ProjectActive, Periods: record.Periods}
		return d.Decision
	}
	if !observed.Held || observed.Renewed {
		d.schedule()
	}
	if r.Phase == "" {
		r.Phase = v1alpha1.ProjectActive
	}
	if observed.Held {
		d.hold()
		return d.Decision
	}
	for r.hasStep() && d.decideStep() {
	}
	return d.Decision
}

type decider struct {
	Decision
	now      time.Time
	terms    *Terms
	observed *Observation
}

// hold removes the next step, and withdraws the request of a deletion and its approval. The end of the hold schedules the
// step again.
func (d *decider) hold() {
	r := &d.Record
	held := Record{Phase: r.Phase, Periods: r.Periods, Validity: r.Validity, Anchor: r.Anchor, RequestHeld: r.RequestHeld}
	switch {
	case r.hasExpired():
		held.Closed, held.End, held.Suspended, held.DismissedUntil = true, r.End, r.Suspended, r.DismissedUntil
		if r.Phase != v1alpha1.ProjectExpired {
			held.ShortenedFrom = r.ShortenedFrom
		}
		if r.Phase == v1alpha1.ProjectPendingDeletion {
			held.Phase, held.Suspended = v1alpha1.ProjectSuspended, d.now
		}
	case r.Phase == v1alpha1.ProjectPendingDeletion:
		held.Phase = v1alpha1.ProjectActive
	}
	*r = held
}

// decideStep warns of the next step, moves its deadline, and takes it. It reports whether it took the step.
func (d *decider) decideStep() (taken bool) {
	r := &d.Record
	s := d.terms.stepAfter(r)
	d.followTerms(&s)
	d.observeWarnings(&s)
	required := policytime.Later(d.earliest(&s), d.terms.Calendar.Postpone(d.deadlineAfterPause(&s)))
	if required.After(r.Deadline) {
		target := required
		if d.isUnsent(&s) {
			target = target.Add(sendMargin) // the warning is not sent in this second
		}
		d.move(target)
	}
	d.forgetShortening(&s)
	if d.now.Before(r.Deadline) {
		d.wakeAt(r.Deadline)
	} else if !d.isPaused() && d.isNoticeComplete(&s) && !d.isInHolidays() && !d.isHeldByRequest() {
		d.take(&s)
		return true
	}
	d.warn(&s, !required.After(r.Deadline))
	d.reportBlocked(&s)
	return false
}

// take changes the phase, and schedules the step after it.
func (d *decider) take(s *step) {
	former := d.Record
	d.Record = Record{
		Phase: s.phase, Closed: former.hasExpired() || s.phase != v1alpha1.ProjectPendingDeletion, Periods: former.Periods,
		Validity: former.Validity, Anchor: former.Anchor, End: former.End, RequestHeld: former.RequestHeld,
		ShortenedFrom: former.ShortenedFrom, Approval: former.Approval,
	}
	switch s.phase {
	case v1alpha1.ProjectExpired:
		d.Record.End = d.now
	case v1alpha1.ProjectSuspended:
		d.Record.Suspended = d.now
	}
	d.Next = time.Time{}
	d.scheduleStep()
}

// isNoticeComplete reports whether the owners got the full notice by now.
func (d *decider) isNoticeComplete(s *step) bool {
	r, c := &d.Record, &d.terms.Calendar
	return !r.FirstWarned.IsZero() && !r.LastWarned.IsZero() && !d.observed.MailPaused &&
		!d.now.Before(c.After(r.FirstWarned, s.longest())) && !d.now.Before(c.After(r.LastWarned, s.shortest()))
}

// deadlineAfterPause returns the deadline of a step, or its shortest lead after a pause of Sluice that held it.
func (d *decider) deadlineAfterPause(s *step) time.Time {
	deadline, until := d.Record.Deadline, d.observed.PausedUntil
	if until.IsZero() || !deadline.Before(until) {
		return deadline
	}
	if after := d.terms.Calendar.After(until, s.shortest()); after.After(d.now) {
		return after
	}
	return deadline // the pause is long over: something else holds the step
}

// isPaused reports whether a pause of Sluice holds a step that is due.
func (d *decider) isPaused() bool {
	d.wakeAt(d.observed.PausedUntil)
	d.Paused = d.now.Before(d.observed.PausedUntil)
	return d.Paused
}

// isInHolidays reports whether no step is taken now, because of holidays.
func (d *decider) isInHolidays() bool {
	end := d.terms.Calendar.Postpone(d.now)
	d.wakeAt(end)
	return end.After(d.now)
}

// isHeldByRequest reports whether a request of a renewal without a decision holds the deadline, which has passed.
func (d *decider) isHeldByRequest() bool {
	r, requested := &d.Record, d.observed.RequestedAt
	if requested.IsZero() || !r.RequestHeld.IsZero() && !r.RequestHeld.Equal(requested) {
		return false
	}
	r.RequestHeld = requested
	until := policytime.Later(r.Deadline, requested).Add(maxRequestHold)
	d.wakeAt(until)
	d.HeldByRequest = d.now.Before(until)
	return d.HeldByRequest
}

// wakeAt moves the next decision forward to t.
func (d *decider) wakeAt(t time.Time) {
	if t.After(d.now) && (d.Next.IsZero() || t.Before(d.Next)) {
		d.Next = t
	}
}
