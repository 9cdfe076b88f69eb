// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"slices"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Terms are the rules for the expiry of one project.
type Terms struct {
	// Validity is the length of a period; zero if the project never expires.
	Validity period.Period
	// Anchor is the start of the first period.
	Anchor time.Time
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
func (t *Terms) endOf(n int32) time.Time {
	return t.Calendar.Postpone(t.Validity.ExpiryOf(t.Anchor, int(n), t.Zone))
}

// step returns the step that follows the n-th period, with its deadline and the leads of its warnings, the longest first.
func (t *Terms) step(n int32) step {
	end := t.endOf(n)
	if t.AtExpiry == v1alpha1.ExpiryConfirm {
		s := step{phase: v1alpha1.ProjectPendingDeletion, deadline: t.Calendar.Postpone(end.Add(t.DeleteAfter))}
		s.leads = append([]time.Duration{t.DeleteAfter}, t.leadsBelow(t.DeleteAfter)...)
		return s
	}
	length := t.Validity.ExpiryOf(t.Anchor, int(n), t.Zone).Sub(t.Validity.ExpiryOf(t.Anchor, int(n)-1, t.Zone))
	return step{phase: v1alpha1.ProjectExpired, deadline: end, leads: t.leadsBelow(length)}
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
