// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Record is the part of a project's status from which its expiry follows.
type Record struct {
	Phase v1alpha1.ProjectPhase
	// Periods is the number of the present period; 0 if none is scheduled.
	Periods int32
	// Validity and Anchor are those from which the deadline was computed.
	Validity string
	Anchor   time.Time
	// End is the end of the present period, or when the project expired; zero if it has none.
	End time.Time
	// Step is the next phase and Deadline its time; zero if there is none.
	Step     v1alpha1.ProjectPhase
	Deadline time.Time
	// FirstWarned and LastWarned are when the first and the last warning of the step were sent; zero if they were not.
	FirstWarned, LastWarned time.Time
	// UnsentSince is since when a warning of the step is due and not sent, without the time in which mail was paused.
	UnsentSince time.Time
	// Moved is when the deadline was moved last.
	Moved time.Time
	// RequestHeld is the time of the request of a renewal that held the deadline; one does so in each period.
	RequestHeld time.Time
}

// Observation is what a decision depends on besides the record and the terms.
type Observation struct {
	// Held and Exempt report whether the project has an exception that applies now.
	Held, Exempt bool
	// MailPaused reports whether no mail can be sent: delivery is paused, or not set up.
	MailPaused bool
	// Renewed reports whether the project is renewed now.
	Renewed bool
	// RequestedAt is the time of the oldest request of a renewal without a decision; zero for none.
	RequestedAt time.Time
	// Owners and Contacts return the delivery of a warning to the project's owners and to the department's contacts.
	Owners, Contacts func(WarningKey) Delivery
}

// Delivery is what became of a warning to a group of recipients.
type Delivery struct {
	// SentAt is when it was sent to the first of them; zero if it was not.
	SentAt time.Time
	// Failed reports whether it will reach none of them.
	Failed bool
	// Missing reports whether it is not recorded for one of them.
	Missing bool
}

// WarningKey identifies a warning of a project.
type WarningKey struct {
	// Step is the phase of which it warns, Periods the period that ends, and Deadline when it does so.
	Step     v1alpha1.ProjectPhase
	Periods  int32
	Deadline time.Time
	Lead     time.Duration
}

// Warning is a warning that is due.
type Warning struct {
	WarningKey
	DueAt time.Time
	// ToContacts reports whether it goes to the department's contacts as well.
	ToContacts bool
	// Superseded reports whether a later one is due as well: it is recorded and not sent.
	Superseded bool
}

// Decision is the result of Decide. Other warnings than these are not to be sent any more.
type Decision struct {
	Record   Record
	Warnings []Warning
	// Blocked is the reason for which the next step cannot come: ReasonMailPaused, ReasonNoRecipient or empty.
	Blocked string
	// HeldByRequest reports whether the deadline has passed and a request of a renewal holds the step.
	HeldByRequest bool
	// Next is the time of the next decision if nothing changes before; zero for never.
	Next time.Time
}

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
	if terms.Validity.IsZero() || observed.Exempt {
		d.Record = Record{Phase: v1alpha1.ProjectActive, Periods: record.Periods}
		return d.Decision
	}
	if !observed.Held || observed.Renewed {
		d.schedule()
	}
	switch {
	case d.Record.Phase == "":
		d.Record.Phase = v1alpha1.ProjectActive
	case !d.hasStep():
		return d.Decision
	}
	if observed.Held {
		// The end of the hold schedules the step again.
		r := &d.Record
		d.Record = Record{Phase: r.Phase, Periods: r.Periods, Validity: r.Validity, Anchor: r.Anchor, RequestHeld: r.RequestHeld}
		return d.Decision
	}
	d.decideStep()
	return d.Decision
}

type decider struct {
	Decision
	now      time.Time
	terms    *Terms
	observed *Observation
}

// hasStep reports whether a step follows the present phase.
func (d *decider) hasStep() bool {
	return d.Record.Phase == v1alpha1.ProjectActive || d.Record.Phase == v1alpha1.ProjectExpiring
}

// schedule sets the present period and its deadline if they are new.
func (d *decider) schedule() {
	r := &d.Record
	isNew := r.Phase == "" && d.now.Sub(d.terms.Anchor) < newProjectAge
	switch {
	case d.observed.Renewed:
		d.begin(d.terms.firstEndingAfter(d.now, d.presentPeriod()+1))
	case isNew:
		d.begin(1)
	case r.Periods == 0 || r.Phase == "":
		d.begin(d.firstWithFullNotice(1))
	case d.haveTermsChanged():
		d.applyChangedTerms()
	case r.Deadline.IsZero() && d.hasStep():
		d.begin(d.firstWithFullNotice(r.Periods))
	}
}

// haveTermsChanged reports whether the record belongs to other terms.
func (d *decider) haveTermsChanged() bool {
	r := &d.Record
	recorded, err := period.ParsePeriod(r.Validity)
	return err != nil || !recorded.Equal(d.terms.Validity) || !r.Anchor.Equal(d.terms.Anchor) || !d.isOfPresentAction()
}

// isOfPresentAction reports whether the record belongs to the present action at the end of a period.
func (d *decider) isOfPresentAction() bool {
	r := &d.Record
	if d.hasStep() {
		return r.Step == "" || r.Step == d.terms.stepPhase()
	}
	return r.Phase == d.terms.stepPhase()
}

// applyChangedTerms schedules the project by the present terms. One that has ended stays so, unless its present period
// now ends later.
func (d *decider) applyChangedTerms() {
	r := &d.Record
	if d.hasStep() || !d.isOfPresentAction() {
		d.begin(d.firstWithFullNotice(1))
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

// firstWithFullNotice returns the first period from the n-th on whose warnings are all ahead.
func (d *decider) firstWithFullNotice(n int32) int32 {
	// Warnings are due before the end of a period, or on the day on which the owners are asked for confirmation.
	for n = d.terms.firstEndingAfter(d.now.Add(-24*time.Hour), n); ; n++ {
		if s := d.terms.step(n); !d.terms.dueAt(s.deadline, s.longest()).Before(d.now) {
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

// decideStep warns of the next step, moves its deadline, and takes it.
func (d *decider) decideStep() {
	r := &d.Record
	s := d.terms.step(r.Periods)
	d.observeWarnings(&s)
	required := laterOf(d.earliest(&s), d.terms.Calendar.Postpone(r.Deadline))
	if required.After(r.Deadline) {
		target := required
		if d.isUnsent(&s) {
			target = target.Add(sendMargin) // the warning is not sent in this second
		}
		d.move(target)
	}
	if d.now.Before(r.Deadline) {
		d.wakeAt(r.Deadline)
	} else if d.isNoticeComplete(&s) && !d.isInHolidays() && !d.isHeldByRequest() {
		*r = Record{
			Phase: s.phase, Periods: r.Periods, Validity: r.Validity, Anchor: r.Anchor, End: r.End, RequestHeld: r.RequestHeld,
		}
		if s.phase == v1alpha1.ProjectExpired {
			r.End = d.now
		}
		return
	}
	d.warn(&s, !required.After(r.Deadline))
	d.reportBlocked(&s)
}

// isNoticeComplete reports whether the owners got the full notice by now.
func (d *decider) isNoticeComplete(s *step) bool {
	r, c := &d.Record, &d.terms.Calendar
	return !r.FirstWarned.IsZero() && !r.LastWarned.IsZero() && !d.observed.MailPaused &&
		!d.now.Before(c.After(r.FirstWarned, s.longest())) && !d.now.Before(c.After(r.LastWarned, s.shortest()))
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
	until := laterOf(r.Deadline, requested).Add(maxRequestHold)
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
