// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// decideDeletion applies the decision on the request of the project's deletion.
func (d *decider) decideDeletion() {
	r, o := &d.Record, d.observed
	switch {
	case r.Phase != v1alpha1.ProjectPendingDeletion || r.Approval.isGiven():
	case o.Approval.isGiven():
		r.Approval = o.Approval
		r.Approval.At = d.now
	case o.Dismissed && r.Closed:
		*r = Record{
			Phase: v1alpha1.ProjectSuspended, Closed: true, Suspended: d.now, Periods: r.Periods, Validity: r.Validity, Anchor: r.Anchor,
			End: r.End, RequestHeld: r.RequestHeld, ShortenedFrom: r.ShortenedFrom, DismissedUntil: policytime.Later(o.DismissedUntil, d.now),
		}
	case o.Dismissed:
		d.begin(d.terms.firstWithFullNotice(d.now, d.presentPeriod()+1))
	}
}

// scheduleStep sets the step after the expiry if there is one and it has no time, with all its warnings ahead.
func (d *decider) scheduleStep() {
	if r := &d.Record; r.hasStep() && r.Deadline.IsZero() {
		s := d.terms.stepAfter(r)
		r.Step, r.Deadline = s.phase, d.terms.withFullNotice(&s, d.now).UTC()
	}
}

// shortestChange is the change of the terms that brings a step forward. Other time zones have other midnights.
const shortestChange = 12 * time.Hour

// followTerms moves a step after the expiry if the department's terms have changed. It comes earlier only with full notice,
// and not after a late warning postponed it.
func (d *decider) followTerms(s *step) {
	r := &d.Record
	switch latest := r.Deadline.Add(-shortestChange); {
	case r.isInPeriod():
	case s.deadline.After(r.Deadline):
		if !d.terms.dueAt(s.deadline, s.longest()).Before(d.now) {
			d.forgetWarnings()
		}
		r.Deadline = s.deadline.UTC()
	case s.phase != v1alpha1.ProjectDeleting && s.deadline.Before(latest) && r.Moved.IsZero():
		earlier := d.terms.withFullNotice(s, d.now).UTC()
		if !earlier.Before(latest) {
			return
		}
		if s.phase == v1alpha1.ProjectSuspended {
			r.ShortenedFrom = policytime.Later(r.ShortenedFrom, r.Deadline)
		}
		d.forgetWarnings()
		r.Deadline = earlier
	}
}

// forgetShortening forgets the former time of a suspension that does not come before it any more.
func (d *decider) forgetShortening(s *step) {
	if r := &d.Record; s.phase == v1alpha1.ProjectSuspended && !r.ShortenedFrom.After(r.Deadline) {
		r.ShortenedFrom = time.Time{}
	}
}

// forgetWarnings requires all warnings of the step again.
func (d *decider) forgetWarnings() {
	r := &d.Record
	r.FirstWarned, r.LastWarned, r.UnsentSince, r.Moved = time.Time{}, time.Time{}, time.Time{}, time.Time{}
}
