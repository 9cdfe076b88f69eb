// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"time"

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
	// Deadline is that of the next step; zero if there is none.
	Deadline time.Time
	// FirstWarned and LastWarned are when the first and the last warning of the step were sent; zero if they were not.
	FirstWarned, LastWarned time.Time
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
	// SentAt returns when the warning of a deadline with that lead was sent; zero if it was not.
	SentAt func(deadline time.Time, lead time.Duration) time.Time
}

// Warning is a warning that is due.
type Warning struct {
	Phase    v1alpha1.ProjectPhase
	Periods  int32
	Deadline time.Time
	Lead     time.Duration
	DueAt    time.Time
	// Last reports whether it is the last one before the step.
	Last bool
	// Superseded reports whether a later one is due as well: it is recorded and not sent.
	Superseded bool
}

// Decision is the result of Decide. The caller records the warnings before it writes the record.
type Decision struct {
	Record   Record
	Warnings []Warning
	// Blocked reports whether the step waits for mail although its deadline has passed.
	Blocked bool
	// Next is the time of the next decision if nothing changes before; zero for never.
	Next time.Time
}

// maxRequestHold is the longest time for which a request of a renewal holds a deadline.
const maxRequestHold = 30 * 24 * time.Hour

// Decide returns the decision for a project. Called again with the record that it returned, it changes nothing.
func Decide(now time.Time, record Record, terms Terms, observed Observation) Decision {
	d := decider{Decision: Decision{Record: record}, now: now.UTC().Truncate(time.Second), terms: &terms, observed: &observed}
	switch {
	case terms.Validity.IsZero() || observed.Exempt:
		d.Record = Record{Phase: v1alpha1.ProjectActive, Periods: record.Periods}
	case observed.Held:
		d.Record.Deadline, d.Record.FirstWarned, d.Record.LastWarned = time.Time{}, time.Time{}, time.Time{}
	default:
		d.schedule()
		if d.hasStep() {
			d.decideStep()
		}
	}
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
		n := r.Periods + 1
		for !d.terms.endOf(n).After(d.now) {
			n++
		}
		d.begin(n)
	case isNew:
		d.begin(1)
	case r.Periods == 0 || r.Validity != d.terms.Validity.String() || !r.Anchor.Equal(d.terms.Anchor), r.Deadline.IsZero() && d.hasStep():
		d.begin(d.firstWithFullNotice())
	}
}

// newProjectAge is the age up to which a project without a record counts as new, and not as restored without its status.
const newProjectAge = 24 * time.Hour

// firstWithFullNotice returns the first period from the present one on whose warnings are all ahead.
func (d *decider) firstWithFullNotice() int32 {
	n := max(1, d.Record.Periods)
	if d.Record.Validity != d.terms.Validity.String() {
		n = 1
	}
	for {
		s := d.terms.step(n)
		if !d.terms.dueAt(s.deadline, s.longest()).Before(d.now) {
			return n
		}
		n++
	}
}

// begin makes a period the present one.
func (d *decider) begin(n int32) {
	d.Record = Record{
		Phase: v1alpha1.ProjectActive, Periods: n, Validity: d.terms.Validity.String(), Anchor: d.terms.Anchor,
		Deadline: d.terms.step(n).deadline.UTC(),
	}
}

// decideStep warns of the next step, moves its deadline, and takes it.
func (d *decider) decideStep() {
	r := &d.Record
	s := d.terms.step(r.Periods)
	d.observeWarnings(&s)
	if required := d.earliest(&s); required.After(r.Deadline) {
		d.move(required)
	}
	if !d.now.Before(r.Deadline) && d.isNoticeComplete(&s) && !d.isHeldByRequest() {
		*r = Record{Phase: s.phase, Periods: r.Periods, Validity: r.Validity, Anchor: r.Anchor, RequestHeld: r.RequestHeld}
		return
	}
	d.Blocked = !d.now.Before(r.Deadline) && d.observed.MailPaused
	d.warn(&s)
	d.wakeAt(r.Deadline)
}

// observeWarnings records when the first and the last warning were sent.
func (d *decider) observeWarnings(s *step) {
	r := &d.Record
	for _, lead := range s.leads {
		sent := d.observed.SentAt(r.Deadline, lead)
		if sent.IsZero() {
			continue
		}
		if r.FirstWarned.IsZero() || sent.Before(r.FirstWarned) {
			r.FirstWarned = sent
		}
		if lead == s.shortest() {
			r.LastWarned = sent
		}
	}
}

// earliest returns the earliest time of the step after the warnings that were sent, and after those that are late, as if
// they were sent now.
func (d *decider) earliest(s *step) time.Time {
	r := &d.Record
	after := func(sent time.Time, lead time.Duration) time.Time {
		switch {
		case !sent.IsZero():
			return d.terms.Calendar.After(sent, lead)
		case d.now.Before(d.terms.dueAt(r.Deadline, lead)):
			return r.Deadline
		}
		return d.terms.Calendar.After(d.now, lead)
	}
	return laterOf(after(r.FirstWarned, s.longest()), after(r.LastWarned, s.shortest()))
}

// isNoticeComplete reports whether the owners got the full notice by now.
func (d *decider) isNoticeComplete(s *step) bool {
	r, c := &d.Record, &d.terms.Calendar
	return !r.FirstWarned.IsZero() && !r.LastWarned.IsZero() && !d.observed.MailPaused &&
		!d.now.Before(c.After(r.FirstWarned, s.longest())) && !d.now.Before(c.After(r.LastWarned, s.shortest()))
}

// move moves the deadline by whole days to at least a time, at most once a day and never while no mail can be sent.
func (d *decider) move(required time.Time) {
	r := &d.Record
	const daily = 24 * time.Hour
	if d.observed.MailPaused {
		return
	}
	if next := r.Moved.Add(daily); d.now.Before(next) {
		d.wakeAt(next)
		return
	}
	local := r.Deadline.In(d.terms.Zone)
	for days := 1; r.Deadline.Before(required); days++ {
		r.Deadline = d.terms.Calendar.Postpone(local.AddDate(0, 0, days)).UTC()
	}
	r.Moved = d.now
}

// isHeldByRequest reports whether a request of a renewal without a decision holds the deadline.
func (d *decider) isHeldByRequest() bool {
	r, requested := &d.Record, d.observed.RequestedAt
	if requested.IsZero() || !r.RequestHeld.IsZero() && !r.RequestHeld.Equal(requested) {
		return false
	}
	r.RequestHeld = requested
	until := requested.Add(maxRequestHold)
	d.wakeAt(until)
	return d.now.Before(until)
}

// warn returns the warnings that are due. Of several only the last one is sent.
func (d *decider) warn(s *step) {
	r := &d.Record
	for _, lead := range s.leads {
		due := d.terms.dueAt(r.Deadline, lead)
		if d.now.Before(due) {
			d.wakeAt(due)
			break
		}
		r.Phase = v1alpha1.ProjectExpiring
		for i := range d.Warnings {
			d.Warnings[i].Superseded = true
		}
		d.Warnings = append(d.Warnings, Warning{
			Phase: s.phase, Periods: r.Periods, Deadline: r.Deadline, Lead: lead, DueAt: due, Last: lead == s.shortest(),
		})
	}
}

// wakeAt moves the next decision forward to t.
func (d *decider) wakeAt(t time.Time) {
	if t.After(d.now) && (d.Next.IsZero() || t.Before(d.Next)) {
		d.Next = t
	}
}
