// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// schedule sets the present period and the next step if they are new.
func (d *decider) schedule() {
	r := &d.Record
	isNew := r.Phase == "" && d.now.Sub(d.terms.Anchor) < newProjectAge
	switch {
	case d.observed.Renewed:
		d.begin(d.terms.firstEndingAfter(d.now, d.presentPeriod()+1))
	case isNew:
		d.begin(1)
	case r.Periods == 0 || r.Phase == "":
		d.begin(d.terms.firstWithFullNotice(d.now, 1))
	case d.haveTermsChanged():
		d.applyChangedTerms()
	case r.Deadline.IsZero() && r.isInPeriod():
		d.begin(d.terms.firstWithFullNotice(d.now, r.Periods))
	}
	d.decideDeletion()
	d.scheduleStep()
}

// haveTermsChanged reports whether the record belongs to other terms.
func (d *decider) haveTermsChanged() bool {
	r := &d.Record
	recorded, err := period.ParsePeriod(r.Validity)
	return err != nil || !recorded.Equal(d.terms.Validity) || !r.Anchor.Equal(d.terms.Anchor) || !d.isOfPresentAction()
}

// isOfPresentAction reports whether the record belongs to the present action at the end of a period.
func (d *decider) isOfPresentAction() bool {
	switch r := &d.Record; {
	case r.isInPeriod():
		return r.Step == "" || r.Step == d.terms.stepPhase()
	default:
		return r.hasExpired() == (d.terms.AtExpiry != v1alpha1.ExpiryConfirm)
	}
}

// applyChangedTerms schedules the project by the present terms. One that has ended stays so, unless its present period
// now ends later.
func (d *decider) applyChangedTerms() {
	r := &d.Record
	if r.isInPeriod() || !d.isOfPresentAction() {
		d.begin(d.terms.firstWithFullNotice(d.now, 1))
		return
	}
	n := d.presentPeriod()
	if s := d.terms.step(n); !d.terms.dueAt(s.deadline, s.longest()).Before(d.now) {
		d.begin(n)
		return
	}
	r.Periods, r.Validity, r.Anchor = n, d.terms.Validity.String(), d.terms.Anchor
}

// presentPeriod returns the number of the present period. Recorded periods of another length become the first period that
// ends after their last one began.
func (d *decider) presentPeriod() int32 {
	r := &d.Record
	recorded, err := period.ParsePeriod(r.Validity)
	if err != nil || recorded.Equal(d.terms.Validity) || r.Periods == 0 {
		return r.Periods
	}
	former := *d.terms
	former.Validity = recorded
	return d.terms.firstEndingAfter(former.endOf(r.Periods-1), 1)
}

// firstWithFullNotice returns the first period from the n-th on whose warnings are all ahead of a time.
func (t *Terms) firstWithFullNotice(now time.Time, n int32) int32 {
	// Warnings are due before the end of a period, or on the day on which the owners are asked for confirmation.
	for n = t.firstEndingAfter(now.Add(-24*time.Hour), n); ; n++ {
		if s := t.step(n); !t.dueAt(s.deadline, s.longest()).Before(now) {
			return n
		}
	}
}

// begin makes a period the present one.
func (d *decider) begin(n int32) {
	s := d.terms.step(n)
	d.Record = Record{
		Phase: v1alpha1.ProjectActive, Periods: n, Validity: d.terms.Validity.String(), Anchor: d.terms.Anchor,
		End: d.terms.endOf(n).UTC(), Step: s.phase, Deadline: s.deadline.UTC(),
	}
}
