// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

var spring = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

// A project expires when its validity ends, after three mails to its owner, the last one to the contacts as well. The
// mails and the phase are as recorded, and nothing is written at rest.
func TestProjectExpires(t *testing.T) {
	c := newCluster(t, newStudents("P6M", v1alpha1.ExpiryExpire), newThesis(spring, "anna"))
	c.runUntil(spring.AddDate(0, 4, 0))
	c.requirePhase(v1alpha1.ProjectActive)
	end := time.Date(2026, 9, 2, 0, 0, 0, 0, c.zone)
	if s := c.project().Status; !s.ExpiresAt.Time.Equal(end) || s.Next == nil || s.Next.Phase != v1alpha1.ProjectExpired || s.ClosedAt != nil {
		t.Errorf("before: %+v", s)
	}
	c.runUntil(spring.AddDate(0, 5, 20))
	c.requirePhase(v1alpha1.ProjectExpiring)
	c.runUntil(end.Add(-time.Second))
	c.requirePhase(v1alpha1.ProjectExpiring)
	c.runUntil(end)
	c.requirePhase(v1alpha1.ProjectExpired)
	if s := c.project().Status; s.ClosedAt == nil || !s.ClosedAt.Time.Equal(end) || !s.ExpiresAt.Time.Equal(end) ||
		s.Next == nil || s.Next.Phase != v1alpha1.ProjectSuspended || !s.Next.At.Time.Equal(end.AddDate(0, 0, 14)) {
		t.Errorf("after: %+v", s)
	}
	writes := c.writes
	c.runUntil(end.AddDate(0, 0, 6))
	if c.writes != writes {
		t.Errorf("%d writes at rest", c.writes-writes)
	}
	want := []string{
		"2026-08-02 ProjectExpiring anna", "2026-08-25 ProjectExpiring anna", "2026-08-31 ProjectExpiring anna",
		"2026-08-31 ProjectExpiring desk", "2026-09-02 ProjectExpired anna", "2026-09-02 ProjectExpired desk",
	}
	if diff := cmp.Diff(want, c.sentMails()); diff != "" {
		t.Errorf("mails (-want +got)\n%s", diff)
	}
}

// A renewal that is approved before the step is applied first, also at the last second, once, and counted if no person
// approved it. What it needs is in the project's status, so that a deleted Extension loses nothing.
func TestRenewalIsAppliedOnce(t *testing.T) {
	end := time.Date(2026, 9, 2, 0, 0, 0, 0, berlin(t))
	for name, tc := range map[string]struct {
		at       time.Time
		approver string
		counted  int32
	}{
		"while it expires":         {end.AddDate(0, 0, -5), "", 1},
		"at the last second":       {end.Add(-time.Second), "head", 0},
		"a month after the expiry": {end.AddDate(0, 1, 0), "", 1},
		"after the following end":  {end.AddDate(0, 7, 0), "head", 0},
		"when lifecycle missed it": {end.Add(time.Hour), "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, newStudents("P6M", v1alpha1.ExpiryExpire), newThesis(spring, "anna"))
			c.runUntil(policytime.Later(tc.at.Add(-2*time.Hour), spring))
			c.clock.now = tc.at
			e := c.request("first", v1alpha1.ExtensionApproved, tc.approver)
			other := c.request("second", v1alpha1.ExtensionApproved, tc.approver)
			c.clock.now = tc.at.Add(time.Minute)
			c.settle()
			s := c.project().Status
			if s.Expiry == nil || s.Expiry.LastRenewal == nil || s.Expiry.LastRenewal.UID != e.UID || s.Expiry.SelfServiceRenewals != tc.counted {
				t.Fatalf("status %+v, expiry %+v", s, s.Expiry)
			}
			if c.appliedReason(e) != ReasonRenewed || c.appliedReason(other) != v1alpha1.ReasonAlreadyRenewed || s.ClosedAt != nil {
				t.Errorf("applied: %q and %q, closed at %v", c.appliedReason(e), c.appliedReason(other), s.ClosedAt)
			}
			if e.Status.NewEnd == nil || !e.Status.NewEnd.After(c.clock.now) || s.Next == nil || s.Next.At.Time.Before(e.Status.NewEnd.Time) {
				t.Errorf("new end %v, next %+v", e.Status.NewEnd, s.Next)
			}
			writes := c.writes
			if c.settle(); c.writes != writes {
				t.Errorf("%d writes after the renewal", c.writes-writes)
			}
			var renewed, withdrawn int
			for _, n := range c.notices() {
				if n.Spec.Kind == v1alpha1.NoticeProjectRenewed && n.Status.SentAt != nil {
					renewed++
				}
				if isUnsentWarning(&n) {
					withdrawn++
				}
			}
			if renewed != 1 || withdrawn != 0 {
				t.Errorf("%d mails about the renewal, %d warnings are still to be sent", renewed, withdrawn)
			}
		})
	}
}

// Protects invariant 11 and the full notice: no step comes while no recipient can be warned, and its condition says why.
func TestNoStepWithoutRecipient(t *testing.T) {
	end := time.Date(2026, 9, 2, 0, 0, 0, 0, berlin(t))
	for name, tc := range map[string]struct {
		contacts bool
		live     func(c *cluster)
		// blocked is the reason of the condition two weeks after the end, and expires when the project expires after the
		// obstacle is removed two months after the end.
		blocked string
		expires time.Time
	}{
		"the owner's address is wrong": {true, func(c *cluster) { c.badAddresses["anna@example.org"] = true }, "", end},
		"the owner's address is wrong, and there are no contacts": {
			false, func(c *cluster) { c.badAddresses["anna@example.org"] = true }, v1alpha1.ReasonNoRecipient, end.AddDate(0, 3, 2),
		},
		"the owner's mail is not accepted for days": {true, func(c *cluster) { c.downAddresses["anna@example.org"] = true }, "", end.AddDate(0, 0, 6)},
		"no mail is accepted": {true, func(c *cluster) {
			c.downAddresses["anna@example.org"], c.downAddresses["desk@example.org"] = true, true
		}, v1alpha1.ReasonNoRecipient, end.AddDate(0, 3, 2)},
		"mail is paused": {true, func(c *cluster) { c.paused = true }, v1alpha1.ReasonMailPaused, end.AddDate(0, 3, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			department := newStudents("P6M", v1alpha1.ExpiryExpire)
			if !tc.contacts {
				department.Spec.Contacts = nil
			}
			c := newCluster(t, department, newThesis(spring, "anna"))
			tc.live(c)
			c.runUntil(end.AddDate(0, 0, 14))
			blocked := ""
			if condition := meta.FindStatusCondition(c.project().Status.Conditions, v1alpha1.ConditionExpiryBlocked); condition != nil {
				blocked = condition.Reason
			}
			if blocked != tc.blocked {
				t.Errorf("blocked %q, want %q: %+v", blocked, tc.blocked, c.project().Status.Expiry)
			}
			writes := c.writes
			c.runUntil(end.AddDate(0, 2, 0))
			// The warnings are tried again when the next reminder is due, about every three weeks.
			if c.writes-writes > 10 && tc.blocked != "" {
				t.Errorf("%d writes in six weeks while blocked", c.writes-writes)
			}
			c.paused, c.badAddresses, c.downAddresses = false, nil, nil
			if tc.blocked == v1alpha1.ReasonMailPaused {
				c.deliver() // before the deadline is moved
			}
			if tc.blocked == v1alpha1.ReasonNoRecipient {
				update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Owners = newThesis(spring, "ben").Spec.Owners })
			}
			for c.project().Status.ClosedAt == nil && c.clock.now.Before(end.AddDate(0, 6, 0)) {
				c.runUntil(c.clock.now.Add(day))
			}
			if c.project().Status.ClosedAt == nil {
				t.Fatalf("never expired: %+v", c.project().Status)
			}
			for _, n := range c.notices() {
				if at := n.Status.SentAt; at != nil && n.Spec.Lead != nil && n.Spec.Deadline.Sub(at.Time) < n.Spec.Lead.Length() && tc.blocked == v1alpha1.ReasonMailPaused {
					t.Errorf("a mail of %s warned of %s, less than %s ahead", at, n.Spec.Deadline, n.Spec.Lead)
				}
			}
			if at := c.project().Status.ClosedAt.Time; at.Before(tc.expires.AddDate(0, 0, -2)) || at.After(tc.expires.AddDate(0, 0, 2)) {
				t.Errorf("expired at %s, want about %s; mails %v", at.In(c.zone), tc.expires, c.sentMails())
			}
		})
	}
}
