// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// endOfThesis is when a project of half a year expires that was created in spring.
func endOfThesis(t testing.TB) time.Time { return time.Date(2026, 9, 2, 0, 0, 0, 0, berlin(t)) }

// newExpiredThesis returns a cluster with a project of students that expires, at a time after its creation.
func newExpiredThesis(t testing.TB, at time.Time) *cluster {
	t.Helper()
	c := newCluster(t, newStudents("P6M", v1alpha1.ExpiryExpire), newThesis(spring, "anna"))
	c.runUntil(at)
	return c
}

// eventsAbout returns the reasons of the recorded events that contain a text.
func (c *cluster) eventsAbout(text string) (reasons []string) {
	for len(c.events.Events) > 0 {
		if event := <-c.events.Events; strings.Contains(event, text) {
			reasons = append(reasons, strings.Fields(event)[1])
		}
	}
	return reasons
}

// A students' project that is never renewed goes through all phases, each after its own warnings, and is deleted seven days
// after its owner was told that its deletion was approved.
func TestExpiredProjectEndsInOrder(t *testing.T) {
	end := endOfThesis(t)
	c := newExpiredThesis(t, end.AddDate(0, 0, 14).Add(-time.Second))
	c.requirePhase(v1alpha1.ProjectExpired)
	c.runUntil(end.AddDate(0, 0, 14))
	c.requirePhase(v1alpha1.ProjectSuspended)
	if p := c.project(); p.StopsWorkloads() != v1alpha1.EndProjectSuspended || p.Status.Expiry.ShortenedFrom != nil {
		t.Errorf("suspended: %+v", p.Status)
	}
	c.runUntil(end.AddDate(0, 0, 30))
	c.requirePhase(v1alpha1.ProjectPendingDeletion)
	request := c.deletionRequest()
	if p := c.project(); p.StopsWorkloads() != v1alpha1.EndProjectSuspended || !p.Status.ClosedAt.Time.Equal(end) || p.Status.Next != nil {
		t.Errorf("pending: %+v", p.Status)
	}
	writes := c.writes
	c.runUntil(end.AddDate(0, 3, 0))
	if c.requirePhase(v1alpha1.ProjectPendingDeletion); c.writes != writes {
		t.Errorf("%d writes while the decision is awaited", c.writes-writes)
	}
	c.clock.now = c.clock.now.Add(12 * time.Hour)
	c.approveDeletion()
	s := c.project().Status
	if a := s.Expiry.Deletion; a == nil || a.UID != request.UID || a.ApprovedBy != "dean" || a.Message != "nobody answers" || s.Phase != v1alpha1.ProjectPendingDeletion {
		t.Fatalf("approved: %+v", s)
	}
	if at := s.Next.At.Time; s.Next.Phase != v1alpha1.ProjectDeleting || !at.Equal(end.AddDate(0, 3, 8)) {
		t.Errorf("next: %+v", s.Next)
	}
	if reason := c.appliedReason(request); reason != ReasonDeletionApproved {
		t.Errorf("the request is %q", reason)
	}
	c.runUntil(s.Next.At.Add(-time.Second))
	c.requirePhase(v1alpha1.ProjectPendingDeletion)
	if c.runUntilGone(s.Next.At.Time); !c.isGone() {
		t.Errorf("not deleted: %+v", c.project().Status)
	}
	want := []string{
		"2026-08-02 ProjectExpiring anna", "2026-08-25 ProjectExpiring anna", "2026-08-31 ProjectExpiring anna",
		"2026-08-31 ProjectExpiring desk", "2026-09-02 ProjectExpired anna", "2026-09-02 ProjectExpired desk",
		"2026-09-08 ProjectSuspending anna", "2026-09-14 ProjectSuspending anna", "2026-09-14 ProjectSuspending desk",
		"2026-09-16 ProjectSuspended anna", "2026-09-16 ProjectSuspended desk",
		"2026-09-24 ProjectDeletion anna", "2026-09-30 ProjectDeletion anna",
		"2026-10-02 ProjectDeletion anna", "2026-10-02 ProjectDeletion desk",
		"2026-12-02 ProjectDeletion anna", "2026-12-02 ProjectDeletion desk",
	}
	if diff := cmp.Diff(want, c.sentMails()); diff != "" {
		t.Errorf("mails (-want +got)\n%s", diff)
	}
	wantEvents := []string{"ProjectDeletionRequested", "ProjectDeletionApproved", "ProjectDeletionBegun"}
	if diff := cmp.Diff(wantEvents, c.eventsAbout("project thesis: ")); diff != "" {
		t.Errorf("events on the department (-want +got)\n%s", diff)
	}
}

// A project that expired under a former version, or in the absence of lifecycle, is suspended after full notice only.
func TestNoStepAfterTheExpiryWithoutWarnings(t *testing.T) {
	end := endOfThesis(t)
	c := newExpiredThesis(t, end)
	p := c.project()
	p.Status.Next = nil // as a former version left it
	if err := c.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.clock.now = end.AddDate(2, 0, 3)
	c.settle()
	c.requirePhase(v1alpha1.ProjectExpired)
	if next := c.project().Status.Next; next == nil || next.At.Time.Before(c.clock.now.AddDate(0, 0, 7)) {
		t.Errorf("next: %+v", next)
	}
	c.clock.now = end.AddDate(3, 0, 0)
	c.settle()
	c.requirePhase(v1alpha1.ProjectExpired)
}

// Changed terms move the steps after the expiry. One that comes earlier has its full notice, and the stop limiter knows it.
func TestTermsChangeAfterTheExpiry(t *testing.T) {
	end := endOfThesis(t)
	set := func(suspend, remove string) func(*v1alpha1.Department) {
		return func(d *v1alpha1.Department) {
			d.Spec.Projects.SuspendAfter = ptr.To(period.MustParseDuration(suspend))
			d.Spec.Projects.DeleteAfter = ptr.To(period.MustParseDuration(remove))
		}
	}
	for name, tc := range map[string]struct {
		former, terms func(*v1alpha1.Department)
		at            time.Time
		want          time.Time
		shortened     bool
	}{
		"later, long ahead":            {set("14d", "30d"), set("60d", "90d"), end.AddDate(0, 0, 2), end.AddDate(0, 0, 60), false},
		"later, a day ahead":           {set("14d", "30d"), set("16d", "30d"), end.AddDate(0, 0, 13), end.AddDate(0, 0, 16), false},
		"earlier, in the warnings":     {set("14d", "30d"), set("2d", "30d"), end.AddDate(0, 0, 6).Add(9 * time.Hour), end.AddDate(0, 0, 9), true},
		"earlier, long ahead":          {set("60d", "90d"), set("14d", "30d"), end.AddDate(0, 0, 2), end.AddDate(0, 0, 14), true},
		"earlier, too late to matter":  {set("14d", "30d"), set("8d", "30d"), end.AddDate(0, 0, 12), end.AddDate(0, 0, 14), false},
		"another time for the request": {set("14d", "30d"), set("14d", "90d"), end.AddDate(0, 0, 2), end.AddDate(0, 0, 14), false},
	} {
		t.Run(name, func(t *testing.T) {
			department := newStudents("P6M", v1alpha1.ExpiryExpire)
			tc.former(department)
			c := newCluster(t, department, newThesis(spring, "anna"))
			c.runUntil(tc.at)
			former := c.project().Status.Next.At
			update(c, newStudents("P6M", v1alpha1.ExpiryExpire), tc.terms)
			c.settle()
			s := c.project().Status
			if !s.Next.At.Time.Equal(tc.want) || (s.Expiry.ShortenedFrom != nil) != tc.shortened {
				t.Fatalf("suspended at %s, want %s: %+v", s.Next.At.In(c.zone), tc.want, s.Expiry)
			}
			if tc.shortened && !s.Expiry.ShortenedFrom.Equal(&former) {
				t.Errorf("shortened from %s, want %s", s.Expiry.ShortenedFrom, former)
			}
			c.runUntil(tc.want.Add(-time.Second))
			c.requirePhase(v1alpha1.ProjectExpired)
			c.runUntil(tc.want)
			c.requirePhase(v1alpha1.ProjectSuspended)
			if got := c.project().Status.Expiry.ShortenedFrom; (got != nil) != tc.shortened {
				t.Errorf("suspended, shortened from %s", got)
			}
		})
	}
}

// A decision that was applied does not decide the request of a later phase: after a step of policy time back that has the same
// name. An approval never outlives the exemption that withdrew it.
func TestFormerDecisionDoesNotCountAfterStepBack(t *testing.T) {
	end := endOfThesis(t)
	for _, decision := range []v1alpha1.ExtensionDecision{v1alpha1.ExtensionApproved, v1alpha1.ExtensionDenied} {
		c := newExpiredThesis(t, end.AddDate(0, 0, 30))
		former := c.deletionRequest()
		former.Status.Until = ptr.To(period.MustParseDate("2026-12-31"))
		c.decideRequest(former, decision, "dean")
		c.settle()
		update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Exempt = &v1alpha1.Exception{Reason: "a chair"} })
		c.settle()
		c.clock.now = spring
		update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Exempt = nil })
		c.runUntil(end.AddDate(0, 0, 31))
		c.requirePhase(v1alpha1.ProjectPendingDeletion)
		if s := c.project().Status; s.Expiry.Deletion != nil {
			t.Errorf("%s before: %+v", decision, s.Expiry.Deletion)
		}
		if e := c.deletionRequest(); e.Name != former.Name || e.UID == former.UID || e.Status.Decision != "" {
			t.Errorf("%s before: %+v", decision, e)
		}
		c.approveDeletion()
		if s := c.project().Status; s.Expiry.Deletion == nil {
			t.Errorf("%s before: the new approval does not count", decision)
		}
	}
}
