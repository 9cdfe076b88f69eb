// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"slices"
	"sort"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// Terms are the rules for the expiry of one project.
type Terms struct {
	// Validity is the length of a period; zero if the project never expires.
	Validity period.Period
	// Anchor identifies the start of the first period, whatever the time zone. First is its first day; by default that of
	// the anchor.
	Anchor time.Time
	First  period.Date
	// AtExpiry is what happens when a period ends.
	AtExpiry v1alpha1.ExpiryAction
	// SuspendAfter and DeleteAfter are the times from the end of a period to the suspension of the project, and to the
	// request of its deletion.
	SuspendAfter, DeleteAfter time.Duration
	// Leads are the times between warnings and a step. There is at least one.
	Leads []time.Duration
	// Zone is the time zone of days.
	Zone *time.Location
	// Calendar has the holidays.
	Calendar Calendar
	// LastDigest returns the last digest at or before a time. It is nil if warnings are mails of their own.
	LastDigest func(time.Time) (run time.Time, found bool)
}

// sendMargin is the time between a warning's due time and the latest time at which it can be sent without moving the
// deadline.
const sendMargin = time.Hour

// dueAt returns when the warning with that lead is due: at the last digest that is early enough.
func (t *Terms) dueAt(deadline time.Time, lead time.Duration) time.Time {
	latest := t.Calendar.Before(deadline, lead).Add(-sendMargin)
	if t.LastDigest != nil {
		if run, found := t.LastDigest(latest); found {
			return run
		}
	}
	return latest
}

// endOf returns the end of the n-th period, outside of holidays.
func (t *Terms) endOf(n int32) time.Time { return t.Calendar.Postpone(t.boundary(n)) }

// boundary returns the end of the n-th period.
func (t *Terms) boundary(n int32) time.Time {
	first := t.First
	if first.IsZero() {
		first = period.DateOf(t.Anchor, t.Zone)
	}
	return t.Validity.ExpiryOf(first.Start(t.Zone), int(n), t.Zone)
}

// firstEndingAfter returns the first period from the n-th on that ends after a time.
func (t *Terms) firstEndingAfter(at time.Time, n int32) int32 {
	const most = 1 << 22 // daily periods of more than 9999 years
	//nolint:gosec // bounded
	return n + int32(sort.Search(most, func(i int) bool { return t.endOf(n + int32(i)).After(at) }))
}

// stepPhase returns the phase that follows a period.
func (t *Terms) stepPhase() v1alpha1.ProjectPhase {
	if t.AtExpiry == v1alpha1.ExpiryConfirm {
		return v1alpha1.ProjectPendingDeletion
	}
	return v1alpha1.ProjectExpired
}

// step returns the step that follows the n-th period, with its deadline and the leads of its warnings, the longest first.
// The owners are asked for confirmation at the end of the period, which is the first warning.
func (t *Terms) step(n int32) step {
	end := t.endOf(n)
	if t.AtExpiry == v1alpha1.ExpiryConfirm {
		leads := t.leadsBelow(t.DeleteAfter)
		answer := max(t.DeleteAfter, leads[0])
		if answer > leads[0] {
			leads = append([]time.Duration{answer}, leads...)
		}
		return step{phase: t.stepPhase(), deadline: t.wholeDaysAfter(end, answer), leads: leads}
	}
	return step{phase: t.stepPhase(), deadline: end, leads: t.leadsBelow(t.boundary(n).Sub(t.boundary(n - 1)))}
}

// deletionNotice is the time from the mail about the approval of a deletion to the deletion.
const deletionNotice = 7 * 24 * time.Hour

// stepAfter returns the step that follows the phase of a record, if any does.
func (t *Terms) stepAfter(r *Record) step {
	switch r.Phase {
	case v1alpha1.ProjectExpired:
		return step{v1alpha1.ProjectSuspended, t.wholeDaysAfter(r.End, t.SuspendAfter), t.leadsBelow(t.SuspendAfter)}
	case v1alpha1.ProjectSuspended:
		deadline, before := t.wholeDaysAfter(r.End, t.DeleteAfter), t.DeleteAfter-t.SuspendAfter
		if !r.DismissedUntil.IsZero() {
			deadline, before = policytime.Later(deadline, t.Calendar.Postpone(r.DismissedUntil)), r.DismissedUntil.Sub(r.Suspended)
		}
		return step{v1alpha1.ProjectPendingDeletion, deadline, t.leadsBelow(before)}
	case v1alpha1.ProjectPendingDeletion:
		begins := t.midnightFrom(t.Calendar.After(r.Approval.At.Add(sendMargin), deletionNotice))
		return step{v1alpha1.ProjectDeleting, begins, []time.Duration{deletionNotice}}
	default:
		return t.step(max(1, r.Periods))
	}
}

// withFullNotice returns the first midnight from the step's time on whose warnings are all ahead.
func (t *Terms) withFullNotice(s *step, now time.Time) time.Time {
	if s.phase == v1alpha1.ProjectDeleting {
		return s.deadline // its warning is due at once
	}
	deadline := policytime.Later(s.deadline, t.midnightFrom(t.Calendar.After(now.Add(sendMargin), s.longest())))
	const mostDays = 366 // between digests
	for range mostDays {
		if !t.dueAt(deadline, s.longest()).Before(now) {
			break
		}
		deadline = t.midnightFrom(deadline.Add(time.Second))
	}
	return deadline
}

// followingStep returns when the step comes that follows a phase, of a project that expired at one time and comes to the
// phase at another.
func (t *Terms) followingStep(phase v1alpha1.ProjectPhase, end, at time.Time) time.Time {
	s := t.stepAfter(&Record{Phase: phase, End: end, Suspended: at})
	return t.withFullNotice(&s, at)
}

// midnightFrom returns the first midnight from a time on, without holidays.
func (t *Terms) midnightFrom(at time.Time) time.Time {
	day := period.DateOf(at, t.Zone)
	midnight := day.Start(t.Zone)
	if midnight.Before(at) {
		midnight = day.End(t.Zone)
	}
	return t.Calendar.Postpone(midnight)
}

// wholeDaysAfter returns the midnight that is a time after another midnight, without holidays, rounded up to whole days.
func (t *Terms) wholeDaysAfter(midnight time.Time, length time.Duration) time.Time {
	const wholeDay = 24 * time.Hour
	if rest := length % wholeDay; rest > 0 {
		length += wholeDay - rest
	}
	// Noon is on the same day whether clocks change in between or not.
	noon := t.Calendar.After(midnight, length).Add(wholeDay / 2)
	return t.Calendar.Postpone(period.DateOf(noon, t.Zone).Start(t.Zone))
}

// leadsBelow returns the leads that are shorter than a time, the longest first, or the shortest of all.
func (t *Terms) leadsBelow(length time.Duration) []time.Duration {
	leads := slices.Sorted(slices.Values(t.Leads))
	shortest := leads[0]
	slices.Reverse(leads)
	leads = slices.DeleteFunc(slices.Compact(leads), func(lead time.Duration) bool { return lead >= length })
	if len(leads) == 0 {
		return []time.Duration{shortest}
	}
	return leads
}

// step is a change of phase that needs warnings.
type step struct {
	phase    v1alpha1.ProjectPhase
	deadline time.Time
	// leads are those of its warnings, the longest first.
	leads []time.Duration
}

func (s *step) longest() time.Duration  { return s.leads[0] }
func (s *step) shortest() time.Duration { return s.leads[len(s.leads)-1] }
