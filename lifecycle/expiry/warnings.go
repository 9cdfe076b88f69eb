// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// observeWarnings records when the first and the last warning were sent, and since when one is due and unsent.
func (d *decider) observeWarnings(s *step) {
	r := &d.Record
	first, last := r.FirstWarned, r.LastWarned
	for _, lead := range s.leads {
		sent := d.sentAt(lead)
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
	// A moved deadline does not begin this time again, although its warning may not be due yet.
	if d.observed.MailPaused || first != r.FirstWarned || last != r.LastWarned {
		r.UnsentSince = time.Time{}
	}
	if d.isUnsent(s) && !d.observed.MailPaused && r.UnsentSince.IsZero() {
		r.UnsentSince = d.now
	}
	if !r.UnsentSince.IsZero() {
		d.wakeAt(r.UnsentSince.Add(maxUnsent))
	}
}

// sentAt returns when a warning of the deadline was sent. One to the contacts counts if it reaches no owner.
func (d *decider) sentAt(lead time.Duration) time.Time {
	owners := d.observed.Owners(d.key(lead))
	if owners.SentAt.IsZero() && d.fallsBack(owners) {
		return d.observed.Contacts(d.key(lead)).SentAt
	}
	return owners.SentAt
}

// key identifies a warning. After the expiry its deadline does so alone: a changed validity gives the period that ended
// another number, and would repeat the mail.
func (d *decider) key(lead time.Duration) WarningKey {
	key := WarningKey{Step: d.Record.Step, Deadline: d.Record.Deadline, Lead: lead}
	if d.Record.isInPeriod() {
		key.Periods = d.Record.Periods
	}
	return key
}

// fallsBack reports whether a warning goes to the contacts, because it reaches no owner.
func (d *decider) fallsBack(owners Delivery) bool { return owners.Failed || d.isUnsentTooLong() }

// isUnsentTooLong reports whether a warning is unsent for maxUnsent.
func (d *decider) isUnsentTooLong() bool {
	since := d.Record.UnsentSince
	return !since.IsZero() && !d.now.Before(since.Add(maxUnsent))
}

// dueAt returns when the warning with that lead is due. The owners learn of an approved deletion at once.
func (d *decider) dueAt(lead time.Duration) time.Time {
	if d.Record.Step == v1alpha1.ProjectDeleting {
		return d.Record.Approval.At
	}
	return d.terms.dueAt(d.Record.Deadline, lead)
}

// isDue reports whether the warning with that lead is due.
func (d *decider) isDue(lead time.Duration) bool { return !d.now.Before(d.dueAt(lead)) }

// isUnsent reports whether a warning is due that the full notice needs, and that was not sent.
func (d *decider) isUnsent(s *step) bool {
	r := &d.Record
	return r.FirstWarned.IsZero() && d.isDue(s.longest()) || r.LastWarned.IsZero() && d.isDue(s.shortest())
}

// latestDue returns the shortest lead whose warning is due, and its deliveries; ok is false if none is.
func (d *decider) latestDue(s *step) (lead time.Duration, owners, contacts Delivery, ok bool) {
	for _, l := range s.leads {
		if d.isDue(l) {
			lead, ok = l, true
		}
	}
	if ok {
		owners, contacts = d.observed.Owners(d.key(lead)), d.observed.Contacts(d.key(lead))
	}
	return lead, owners, contacts, ok
}

// goesToContacts reports whether the warning with that lead goes to the contacts as well: the last one before the
// project closes, and one that reaches no owner.
func (d *decider) goesToContacts(s *step, lead time.Duration, owners Delivery) bool {
	isLast := lead == s.shortest() && s.phase != v1alpha1.ProjectPendingDeletion
	return isLast || owners.SentAt.IsZero() && d.fallsBack(owners)
}

// earliest returns the earliest time of the step after the warnings that were sent, and after those that are late, as if
// they were sent now. A warning that has recipients and reaches none of them moves the deadline when it is sent.
func (d *decider) earliest(s *step) time.Time {
	r := &d.Record
	movesAhead := !d.isUnsentTooLong()
	if lead, owners, contacts, due := d.latestDue(s); due && !movesAhead {
		movesAhead = owners.Missing || d.goesToContacts(s, lead, owners) && contacts.Missing
	}
	after := func(sent time.Time, lead time.Duration) time.Time {
		switch {
		case !sent.IsZero():
			return d.terms.Calendar.After(sent, lead)
		case !d.isDue(lead) || !movesAhead:
			return r.Deadline
		}
		d.wakeAt(d.terms.Calendar.Before(r.Deadline, lead).Add(time.Second))
		return d.terms.Calendar.After(d.now, lead)
	}
	return policytime.Later(after(r.FirstWarned, s.longest()), after(r.LastWarned, s.shortest()))
}

// move moves the deadline to the first midnight from a time on, at most once a day and never while no mail can be sent.
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
	r.Deadline, r.Moved = d.terms.midnightFrom(required).UTC(), d.now
	if r.Step == v1alpha1.ProjectExpired {
		r.End = r.Deadline
	}
}

// warn returns the warnings that are due. Of several only the last one is sent. None is while the deadline will move.
func (d *decider) warn(s *step, isSettled bool) {
	r := &d.Record
	for _, lead := range s.leads {
		due := d.dueAt(lead)
		if d.now.Before(due) {
			d.wakeAt(due)
			break
		}
		if r.isInPeriod() {
			r.Phase = v1alpha1.ProjectExpiring
		}
		if !isSettled {
			continue
		}
		for i := range d.Warnings {
			d.Warnings[i].Superseded = true
		}
		d.Warnings = append(d.Warnings, Warning{
			WarningKey: d.key(lead), DueAt: due, ToContacts: d.goesToContacts(s, lead, d.observed.Owners(d.key(lead))),
		})
	}
}

// reportBlocked reports why the step cannot come.
func (d *decider) reportBlocked(s *step) {
	isUnsent := d.isUnsent(s)
	_, owners, contacts, _ := d.latestDue(s)
	// The contacts get the warning now, and a moment to receive it.
	isHopeless := false
	if since := d.Record.UnsentSince; !since.IsZero() {
		end := since.Add(maxUnsent + sendMargin)
		d.wakeAt(end)
		isHopeless = !d.now.Before(end)
	}
	switch {
	case d.observed.MailPaused && (isUnsent || !d.now.Before(d.Record.Deadline)):
		d.Blocked = v1alpha1.ReasonMailPaused
	case isUnsent && (isHopeless || owners.Failed && contacts.Failed):
		d.Blocked = v1alpha1.ReasonNoRecipient
	}
}
