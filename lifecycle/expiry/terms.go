// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"slices"
	"sort"
	"time"

	"sluice.dev/api/period"
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
	// DeleteAfter is the time from the end of a period to the request of the project's deletion.
	DeleteAfter time.Duration
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
