// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

const day = 24 * time.Hour

// runUntil decides at each wake-up until a time, with all mail delivered.
func (h *history) runUntil(until time.Time) {
	for range 10000 {
		h.decide(false)
		d, _ := h.decide(false)
		if d.Next.IsZero() || d.Next.After(until) {
			break
		}
		h.now = d.Next
	}
	h.now = until
	h.decide(false)
}

func (h *history) requirePhase(t *testing.T, want v1alpha1.ProjectPhase) {
	t.Helper()
	if h.record.Phase != want {
		t.Fatalf("at %s: phase %q, want %q: %+v", h.now, h.record.Phase, want, h.record)
	}
}

// Invariant 11: a project whose terms or exceptions change keeps a phase that its record explains, and never loses notice.
func TestTermsChange(t *testing.T) {
	zone := berlin(t)
	start := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	expired := func(h *history) { h.runUntil(start.AddDate(0, 7, 0)); h.record.Phase = v1alpha1.ProjectExpired }
	for name, tc := range map[string]struct {
		validity string
		action   v1alpha1.ExpiryAction
		live     func(t *testing.T, h *history)
		phase    v1alpha1.ProjectPhase
	}{
		"held from its creation": {"P6M", v1alpha1.ExpiryExpire, func(_ *testing.T, h *history) { h.held = true; h.decide(false) }, v1alpha1.ProjectActive},
		"validity shortened after the expiry": {"P6M", v1alpha1.ExpiryExpire, func(_ *testing.T, h *history) {
			expired(h)
			h.terms.Validity = period.MustParsePeriod("P5M")
			h.decide(false)
		}, v1alpha1.ProjectExpired},
		"validity lengthened after the expiry": {"P6M", v1alpha1.ExpiryExpire, func(_ *testing.T, h *history) {
			expired(h)
			h.terms.Validity = period.MustParsePeriod("P1Y")
			h.decide(false)
		}, v1alpha1.ProjectActive},
		"asked for confirmation instead, shortly before the expiry": {"P6M", v1alpha1.ExpiryExpire, func(_ *testing.T, h *history) {
			h.runUntil(time.Date(2026, 9, 3, 12, 0, 0, 0, zone))
			h.terms.AtExpiry = v1alpha1.ExpiryConfirm
			h.runUntil(time.Date(2026, 9, 4, 12, 0, 0, 0, zone))
		}, v1alpha1.ProjectActive},
		"renewed while held": {"P6M", v1alpha1.ExpiryExpire, func(_ *testing.T, h *history) {
			expired(h)
			h.held, h.renewed = true, true
			h.decide(false)
		}, v1alpha1.ProjectActive},
		"a request twenty days before the expiry": {"P6M", v1alpha1.ExpiryExpire, func(_ *testing.T, h *history) {
			h.requested = time.Date(2026, 8, 15, 12, 0, 0, 0, zone)
			h.runUntil(time.Date(2026, 9, 25, 12, 0, 0, 0, zone))
		}, v1alpha1.ProjectExpiring},
		"a request without an answer for thirty days": {"P6M", v1alpha1.ExpiryExpire, func(_ *testing.T, h *history) {
			h.requested = time.Date(2026, 8, 15, 12, 0, 0, 0, zone)
			h.runUntil(time.Date(2026, 10, 5, 12, 0, 0, 0, zone))
		}, v1alpha1.ProjectExpired},
		"holidays that begin before the expiry, added late": {"P6M", v1alpha1.ExpiryExpire, func(_ *testing.T, h *history) {
			h.runUntil(time.Date(2026, 9, 3, 12, 0, 0, 0, zone))
			h.terms.Calendar = NewCalendar(holidays("2026-08-20", "2026-09-10"), zone)
			h.runUntil(time.Date(2026, 9, 10, 12, 0, 0, 0, zone))
		}, v1alpha1.ProjectExpiring},
		"lifecycle comes back in holidays after the expiry": {"P9M", v1alpha1.ExpiryExpire, func(_ *testing.T, h *history) {
			h.runUntil(time.Date(2026, 12, 1, 12, 0, 0, 0, zone))
			h.now = time.Date(2026, 12, 22, 12, 0, 0, 0, zone)
			h.decide(false)
		}, v1alpha1.ProjectExpiring},
		"after these holidays": {"P9M", v1alpha1.ExpiryExpire, func(_ *testing.T, h *history) {
			h.runUntil(time.Date(2026, 12, 1, 12, 0, 0, 0, zone))
			h.now = time.Date(2026, 12, 22, 12, 0, 0, 0, zone)
			h.runUntil(time.Date(2027, 1, 7, 0, 0, 0, 0, zone))
		}, v1alpha1.ProjectExpired},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(zone, tc.validity, tc.action)
			tc.live(t, h)
			h.requirePhase(t, tc.phase)
		})
	}
}

// Invariant 11: periods of another length are not counted as those of the present one. A project with monthly periods
// does not get years when its department changes to half a year.
func TestPeriodsOfAnotherLength(t *testing.T) {
	zone := berlin(t)
	start := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		former, validity string
		periods          int32
		phase            v1alpha1.ProjectPhase
		// renewed is the end after a renewal 24 months and ten days after the start.
		renewed string
	}{
		"half years after 24 months, in the last warnings": {"P1M", "P6M", 24, v1alpha1.ProjectExpiring, "2028-09-02"},
		"half years after 24 months, expired":              {"P1M", "P6M", 24, v1alpha1.ProjectExpired, "2028-09-02"},
		"five months, expired":                             {"P1M", "P5M", 24, v1alpha1.ProjectExpired, "2028-09-02"},
		"quarters after two years, expired":                {"P1Y", "P3M", 2, v1alpha1.ProjectExpired, "2028-06-02"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(zone, tc.former, v1alpha1.ExpiryExpire)
			h.record = Record{
				Phase: tc.phase, Periods: tc.periods, Validity: tc.former, Anchor: start, End: start.AddDate(2, 0, 1),
			}
			h.now = start.AddDate(2, 0, 10)
			h.terms.Validity = period.MustParsePeriod(tc.validity)
			if tc.phase == v1alpha1.ProjectExpired {
				h.decide(false)
				h.requirePhase(t, v1alpha1.ProjectExpired)
			}
			h.renewed = true
			h.decide(false)
			h.requirePhase(t, v1alpha1.ProjectActive)
			if got := h.record.End.In(zone).Add(-time.Second).AddDate(0, 0, 1).Format(time.DateOnly); got != tc.renewed {
				t.Errorf("renewed until %s, want %s: %+v", got, tc.renewed, h.record)
			}
		})
	}
}

// Daily periods since the first year are not counted one by one: a decision would take seconds.
func TestPeriodsFromLongAgo(t *testing.T) {
	h := newHistory(berlin(t), "P1D", v1alpha1.ExpiryExpire)
	h.terms.Anchor = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	digests, last := 0, h.terms.LastDigest
	h.terms.LastDigest = func(at time.Time) (time.Time, bool) { digests++; return last(at) }
	h.decide(false)
	if end := h.record.End; end.Before(h.now) || end.After(h.now.AddDate(0, 0, 4)) || digests > 100 {
		t.Errorf("ends at %s, after %d reads of the schedule", end, digests)
	}
}

// Steps are at the start of a local day, also where clocks change between an anniversary and its step, or at midnight.
func TestStepsAreAtMidnight(t *testing.T) {
	for _, tc := range []struct {
		zone, validity, anchor, want string
		action                       v1alpha1.ExpiryAction
		deleteAfter                  time.Duration
	}{
		{"Europe/Berlin", "P6M", "2026-08-31", "2027-03-01", v1alpha1.ExpiryExpire, 0},
		{"Europe/Berlin", "P1Y", "2028-02-29", "2029-03-01", v1alpha1.ExpiryExpire, 0},
		{"Europe/Berlin", "P1Y", "2025-03-14", "2026-04-14", v1alpha1.ExpiryConfirm, 30 * day},
		{"Europe/Berlin", "P1Y", "2025-10-09", "2026-11-09", v1alpha1.ExpiryConfirm, 30 * day},
		{"America/Santiago", "P1Y", "2025-08-19", "2026-09-19", v1alpha1.ExpiryConfirm, 30 * day},
		{"Australia/Sydney", "P1Y", "2025-09-19", "2026-10-20", v1alpha1.ExpiryConfirm, 30 * day},
		{"Europe/Berlin", "P1Y", "2025-05-09", "2026-05-12", v1alpha1.ExpiryConfirm, 36 * time.Hour},
	} {
		zone, err := time.LoadLocation(tc.zone)
		if err != nil {
			t.Fatal(err)
		}
		h := newHistory(zone, tc.validity, tc.action)
		h.terms.Anchor, h.terms.DeleteAfter, h.terms.Calendar = period.MustParseDate(tc.anchor).Start(zone), tc.deleteAfter, Calendar{}
		h.now = h.terms.Anchor
		h.decide(false)
		if want := period.MustParseDate(tc.want).Start(zone); !h.record.Deadline.Equal(want) {
			t.Errorf("%s from %s in %s ends at %s, want %s", tc.validity, tc.anchor, tc.zone, h.record.Deadline.In(zone), want)
		}
	}
}

// A warning that is late moves the deadline at once, not only when the next one is due.
func TestLateWarningMovesDeadlineAtOnce(t *testing.T) {
	h := newHistory(berlin(t), "P6M", v1alpha1.ExpiryExpire)
	for h.record.Phase != v1alpha1.ProjectExpiring {
		d, _ := h.decide(true)
		if h.record.Phase != v1alpha1.ProjectExpiring {
			h.now = d.Next
		}
	}
	before := h.record.Deadline
	d, _ := h.decide(true)
	if h.now = d.Next; !h.now.Before(before.Add(-29 * day).Add(-14 * day)) {
		t.Errorf("without the first mail the next decision is at %s, before %s", h.now, before)
	}
	if h.decide(true); !h.record.Deadline.After(before) {
		t.Errorf("at %s the deadline is still %s", h.now, before)
	}
}

// A decision at midnight, as after an absence until a deadline, leaves the time to send the warning of the moved deadline: it
// was withdrawn in the next second, each day again.
func TestDeadlineThatMovesAtMidnightLeavesTimeToSend(t *testing.T) {
	h := newHistory(berlin(t), "P6M", v1alpha1.ExpiryExpire)
	h.terms.Calendar, h.terms.LastDigest = Calendar{}, nil
	h.decide(true)
	h.now = h.record.Deadline
	h.decide(true)
	moved := h.record.Deadline
	h.now = policytime.Later(h.now, h.terms.dueAt(moved, 30*day))
	for range 50 {
		h.now = h.now.Add(time.Minute)
		d, _ := h.decide(true)
		if len(d.Warnings) == 0 || d.Warnings[len(d.Warnings)-1].Superseded || !h.record.Deadline.Equal(moved) {
			t.Fatalf("at %s the end is %s, was %s, with the warnings %+v", h.now, h.record.Deadline, moved, d.Warnings)
		}
	}
	h.decide(false)
	h.decide(false)
	if want := h.record.FirstWarned.Add(30 * day); h.record.Deadline.Before(want) || h.record.Deadline.After(want.Add(day)) {
		t.Errorf("warned at %s, the end is %s", h.record.FirstWarned, h.record.Deadline)
	}
}

// A reminder that is later than the time for an answer does not disturb the order of the warnings.
func TestConfirmationWithShortTimeForAnswer(t *testing.T) {
	h := newHistory(berlin(t), "P1Y", v1alpha1.ExpiryConfirm)
	h.terms.DeleteAfter, h.terms.Leads = day, []time.Duration{30 * day, 7 * day}
	if s := h.terms.step(1); s.longest() < s.shortest() || s.shortest() != 7*day {
		t.Errorf("leads %v", s.leads)
	}
}

// The step of an expiry in the holidays is at their end, and holidays do not count as notice.
func TestWarningsAroundHolidays(t *testing.T) {
	zone := berlin(t)
	department := newStudents("P6M", v1alpha1.ExpiryExpire)
	department.Spec.Holidays = holidays("2026-12-24", "2027-01-06", "2026-12-19", "2026-12-23")
	project := newThesis(time.Date(2026, 7, 1, 12, 0, 0, 0, zone), "anna") // until the end of 1 January
	c := newCluster(t, department, project)
	c.settle()
	status := c.project().Status
	terms := DepartmentTerms(department).StartingWith(c.project(), c.clock)
	got := []string{status.Next.At.In(zone).Format("2006-01-02 15:04")}
	for _, due := range terms.DueTimes(&status) {
		got = append(got, due.DueAt.In(zone).Format("2006-01-02 15:04"))
	}
	want := []string{"2027-01-07 00:00", "2026-11-18 08:00", "2026-12-11 08:00", "2026-12-17 08:00"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the step, and when its warnings are due (-want +got)\n%s", diff)
	}
}

// Invariant 6: a validity that changes after the expiry gives the period that ended another number, and repeats no mail.
func TestOtherValidityAfterExpiryRepeatsNoMail(t *testing.T) {
	end := time.Date(2027, 3, 2, 0, 0, 0, 0, berlin(t))
	for name, tc := range map[string]struct {
		at       time.Time
		approved bool
	}{
		"expired":   {end.AddDate(0, 0, 9), false},
		"suspended": {end.AddDate(0, 0, 24), false},
		"approved":  {end.AddDate(0, 0, 40), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newExpiredThesis(t, endOfThesis(t).AddDate(0, 0, -2))
			c.request("renewal", v1alpha1.ExtensionApproved, "")
			if c.runUntil(tc.at); tc.approved {
				c.approveDeletion()
			}
			phase, want := c.project().Status.Phase, c.sentMails()
			update(c, newStudents("P6M", v1alpha1.ExpiryExpire), func(d *v1alpha1.Department) {
				d.Spec.Projects.Validity = ptr.To(period.MustParsePeriod("P3M"))
			})
			c.runUntil(tc.at.Add(5 * time.Hour))
			if s := c.project().Status; s.Phase != phase || s.Periods != 3 {
				t.Errorf("phase %s, period %d", s.Phase, s.Periods)
			}
			if diff := cmp.Diff(want, c.sentMails()); diff != "" {
				t.Errorf("mails (-want +got)\n%s", diff)
			}
		})
	}
}

// A suspension that changed terms brought forward, and a late warning moved behind its former time, counts as shortened no more,
// in the same decision: the second one wrote the status again.
func TestMovedSuspensionIsNotShortened(t *testing.T) {
	h := newHistory(berlin(t), "P6M", v1alpha1.ExpiryExpire)
	h.terms.SuspendAfter = 60 * day
	h.runUntil(time.Date(2026, 9, 10, 12, 0, 0, 0, time.UTC))
	h.requirePhase(t, v1alpha1.ProjectExpired)
	former := h.record.Deadline
	h.terms.SuspendAfter = 14 * day
	h.decide(true)
	if !h.record.ShortenedFrom.Equal(former) {
		t.Fatalf("shortened from %s, want %s", h.record.ShortenedFrom, former)
	}
	h.now = former.AddDate(0, 0, 1)
	h.decide(true)
	if h.failure != "" || !h.record.ShortenedFrom.IsZero() || !h.record.Deadline.After(former) {
		t.Errorf("%s\n%+v", h.failure, h.record)
	}
}
