// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
)

// deletionRequest returns the request that the project's status names.
func (c *cluster) deletionRequest() *v1alpha1.Extension {
	c.t.Helper()
	e := &v1alpha1.Extension{}
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "thesis", Name: c.project().Status.DeletionRequest}, e); err != nil {
		c.t.Fatalf("at %s: %v: %+v", c.clock.now, err, c.project().Status)
	}
	return e
}

// approveDeletion approves the request, and lets lifecycle run.
func (c *cluster) approveDeletion() *v1alpha1.Extension {
	c.t.Helper()
	e := c.deletionRequest()
	e.Status.Message = "nobody answers"
	c.decideRequest(e, v1alpha1.ExtensionApproved, "dean")
	c.settle()
	return e
}

// dismissDeletion dismisses the request until the end of a day, if any, and lets lifecycle run.
func (c *cluster) dismissDeletion(until string) *v1alpha1.Extension {
	c.t.Helper()
	e := c.deletionRequest()
	if e.Status.Message = "a visa takes time"; until != "" {
		e.Status.Until = ptr.To(period.MustParseDate(until))
	}
	c.decideRequest(e, v1alpha1.ExtensionDenied, "dean")
	c.settle()
	return e
}

// isGone reports whether the project was deleted.
func (c *cluster) isGone() bool {
	return apierrors.IsNotFound(c.client.Get(c.t.Context(), client.ObjectKey{Name: "thesis"}, &v1alpha1.Project{}))
}

// deletionRequests returns the names of the requests that exist.
func (c *cluster) deletionRequests() (names []string) {
	c.t.Helper()
	var list v1alpha1.ExtensionList
	if err := c.client.List(c.t.Context(), &list); err != nil {
		c.t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Spec.Action == v1alpha1.ActionDelete {
			names = append(names, e.Name)
		}
	}
	return names
}

// runUntilGone lets policy time pass until a time at which the project may be deleted.
func (c *cluster) runUntilGone(at time.Time) {
	c.t.Helper()
	for c.clock.now = at; !c.isGone(); c.clock.now = c.clock.now.Add(time.Hour) {
		c.reconcile()
		c.deliver()
		if c.clock.now.After(at.AddDate(0, 1, 0)) {
			return
		}
	}
}

// A dismissed deletion is requested again at the end of the time that the administrator gave, also twice, with a request of
// its own each time. The former decision counts no more.
func TestDismissedDeletionIsRequestedAgain(t *testing.T) {
	end := endOfThesis(t)
	c := newExpiredThesis(t, end.AddDate(0, 0, 40))
	first := c.dismissDeletion("2026-12-31")
	c.requirePhase(v1alpha1.ProjectSuspended)
	if s := c.project().Status; !s.Expiry.DismissedUntil.Time.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, c.zone)) || s.DeletionRequest != "" ||
		!s.Next.At.Equal(s.Expiry.DismissedUntil) || !s.ClosedAt.Time.Equal(end) {
		t.Errorf("dismissed: %+v %+v", s, s.Expiry)
	}
	if reason := c.appliedReason(first); reason != v1alpha1.ReasonDenied {
		t.Errorf("the request is %q", reason)
	}
	c.runUntil(time.Date(2027, 1, 1, 0, 0, 0, 0, c.zone))
	c.requirePhase(v1alpha1.ProjectPendingDeletion)
	if c.project().Status.DeletionRequest == first.Name {
		t.Error("the former request is named again")
	}
	c.clock.now = time.Date(2027, 1, 5, 12, 0, 0, 0, c.zone)
	c.dismissDeletion("2027-01-08") // three days: one warning, a day ahead
	c.runUntil(time.Date(2027, 1, 9, 0, 0, 0, 0, c.zone))
	c.requirePhase(v1alpha1.ProjectPendingDeletion)
	var dismissals []string
	for _, n := range c.notices() {
		if n.Spec.Inputs[mail.InputCause] == mail.CauseDeletionDismissed && n.Spec.Recipient.Email == "anna@example.org" {
			dismissals = append(dismissals, n.Spec.Inputs[mail.InputDecidedBy]+": "+n.Spec.Inputs[mail.InputMessage]+" until "+n.Spec.Inputs[mail.InputUntil])
		}
	}
	want := []string{"dean: a visa takes time until 2026-12-31T23:00:00Z", "dean: a visa takes time until 2027-01-08T23:00:00Z"}
	if diff := cmp.Diff(want, dismissals); diff != "" {
		t.Errorf("dismissals (-want +got)\n%s", diff)
	}
}

// A research project is unanswered, dismissed until its next anniversary, unanswered again, and approved. It is usable until its
// deletion begins.
func TestUnconfirmedProjectIsDismissedAndApproved(t *testing.T) {
	c := newCluster(t, newStudents("P1Y", v1alpha1.ExpiryConfirm), newThesis(spring, "anna"))
	c.runUntil(time.Date(2027, 5, 1, 0, 0, 0, 0, c.zone))
	c.requirePhase(v1alpha1.ProjectPendingDeletion)
	c.dismissDeletion("")
	c.requirePhase(v1alpha1.ProjectActive)
	if s := c.project().Status; s.Periods != 2 || !s.ExpiresAt.Time.Equal(time.Date(2028, 3, 2, 0, 0, 0, 0, c.zone)) || s.Expiry.SelfServiceRenewals != 0 {
		t.Errorf("dismissed: %+v", s)
	}
	c.runUntil(time.Date(2028, 5, 1, 12, 0, 0, 0, c.zone))
	c.requirePhase(v1alpha1.ProjectPendingDeletion)
	c.approveDeletion()
	p := c.project()
	if p.IsClosed() || p.StopsWorkloads() != "" || p.Status.Next == nil {
		t.Errorf("approved: %+v", p.Status)
	}
	if c.runUntilGone(p.Status.Next.At.Time); !c.isGone() {
		t.Errorf("not deleted: %+v", c.project().Status)
	}
}

// A renewal until the last second before Deleting, a hold and an exemption undo the approval of a deletion. What was
// approved counts no more, and the owners learn it.
func TestApprovalIsWithdrawn(t *testing.T) {
	end := endOfThesis(t)
	for name, tc := range map[string]struct {
		undo func(c *cluster)
		// phase follows at once, and later the phase a year later.
		phase, later v1alpha1.ProjectPhase
		mail         string
	}{
		"a renewal": {
			func(c *cluster) { c.request("late", v1alpha1.ExtensionApproved, "dean") }, v1alpha1.ProjectActive, v1alpha1.ProjectPendingDeletion,
			"ProjectRenewed",
		},
		"a hold": {func(c *cluster) {
			until := period.MustParseDate("2026-12-31")
			update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Hold = &v1alpha1.Exception{Reason: "a visa", Until: &until} })
		}, v1alpha1.ProjectSuspended, v1alpha1.ProjectPendingDeletion, "ProjectDeletion"},
		"an exemption": {func(c *cluster) {
			update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Exempt = &v1alpha1.Exception{Reason: "a chair"} })
		}, v1alpha1.ProjectActive, v1alpha1.ProjectActive, "ProjectRenewed"},
		"no validity": {func(c *cluster) {
			update(c, newStudents("P6M", v1alpha1.ExpiryExpire), func(d *v1alpha1.Department) { d.Spec.Projects.Validity = nil })
		}, v1alpha1.ProjectActive, v1alpha1.ProjectActive, "ProjectRenewed"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newExpiredThesis(t, end.AddDate(0, 0, 40))
			request := c.approveDeletion()
			c.runUntil(c.project().Status.Next.At.Add(-2 * time.Second))
			before := len(c.sentMails())
			tc.undo(c)
			c.clock.now = c.clock.now.Add(2 * time.Second)
			c.settle()
			c.requirePhase(tc.phase)
			if s := c.project().Status; s.Expiry != nil && s.Expiry.Deletion != nil || s.DeletionRequest != "" {
				t.Errorf("the approval outlives: %+v", s.Expiry)
			}
			mails := c.sentMails()
			if len(mails) == before || !strings.Contains(mails[len(mails)-1], tc.mail) {
				t.Errorf("%d mails before, then %v", before, mails[len(mails)-1])
			}
			c.runUntil(end.AddDate(1, 1, 0))
			c.requirePhase(tc.later)
			if s := c.project().Status; s.DeletionRequest == request.Name || s.Expiry != nil && s.Expiry.Deletion != nil {
				t.Errorf("a year later: %+v", s)
			}
		})
	}
}

// An approved Extension counts only if the project's status names it. Others with this action are removed, as is the request of a
// project that was renewed.
func TestOtherDeletionRequestsDoNotCount(t *testing.T) {
	end := endOfThesis(t)
	c := newExpiredThesis(t, end.AddDate(0, 0, 31))
	for _, name := range []string{"forged-open", "forged-approved"} {
		e := newRenewal(name, c.clock.now)
		e.Spec.Action = v1alpha1.ActionDelete
		if err := c.client.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if name == "forged-approved" {
			c.decideRequest(e, v1alpha1.ExtensionApproved, "anna")
		}
	}
	c.settle()
	if s := c.project().Status; s.Expiry.Deletion != nil || s.Next != nil {
		t.Errorf("forged: %+v", s)
	}
	want := []string{c.project().Status.DeletionRequest, "forged-approved"}
	if diff := cmp.Diff(want, c.deletionRequests()); diff != "" {
		t.Errorf("requests (-want +got)\n%s", diff)
	}
	c.request("renewal", v1alpha1.ExtensionApproved, "")
	c.settle()
	c.requirePhase(v1alpha1.ProjectActive)
	if diff := cmp.Diff([]string{"forged-approved"}, c.deletionRequests()); diff != "" {
		t.Errorf("requests after the renewal (-want +got)\n%s", diff)
	}
}

// The request is created again if the namespace was deleted by hand, and the approval outlives the namespace.
func TestNamespaceDeletedByHand(t *testing.T) {
	end := endOfThesis(t)
	c := newExpiredThesis(t, end.AddDate(0, 0, 31))
	remove := func(e *v1alpha1.Extension) {
		if err := c.client.Delete(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		c.settle()
	}
	remove(c.deletionRequest())
	remove(c.approveDeletion())
	if got := c.deletionRequests(); len(got) != 0 {
		t.Errorf("an approved request was created again: %v", got)
	}
	next := c.project().Status.Next
	if c.runUntilGone(next.At.Time); !c.isGone() {
		t.Errorf("not deleted: %+v", c.project().Status)
	}
}

// Invariant 8: after a crash before or behind any write between the approval and the deletion, the project is deleted at the same
// time, after the same mails.
func TestDeletionAfterCrashAtEveryWrite(t *testing.T) {
	end := endOfThesis(t)
	base := newExpiredThesis(t, end.AddDate(0, 0, 30).Add(-time.Hour))
	run := func(crashAt int, after bool) (*cluster, []string, time.Time, bool) {
		project, objects := base.project(), []client.Object{}
		for _, n := range base.notices() {
			n.ResourceVersion = ""
			objects = append(objects, &n)
		}
		project.ResourceVersion = ""
		c := newCluster(t, newStudents("P6M", v1alpha1.ExpiryExpire), project, objects...)
		c.clock.now, c.crashAt, c.crashAfter = base.clock.now, crashAt, after
		c.runUntil(end.AddDate(0, 0, 31))
		e := c.deletionRequest()
		e.Status.Decision, e.Status.DecidedBy = v1alpha1.ExtensionApproved, "dean"
		for c.client.Status().Update(t.Context(), e) != nil {
		}
		for range 2 * 14 {
			if c.isGone() {
				break
			}
			for range 2 { // an error is tried again at once
				if c.isGone() {
					break
				}
				c.reconcile()
				c.deliver()
			}
			c.clock.now = c.clock.now.Add(12 * time.Hour)
		}
		return c, c.sentMails(), c.clock.now, c.crashAt <= c.writes
	}
	_, wantMails, wantTime, _ := run(1<<20, false)
	for _, after := range []bool{false, true} {
		for crashAt := 1; ; crashAt++ {
			c, mails, at, crashed := run(crashAt, after)
			if !crashed {
				t.Logf("%d writes", crashAt-1)
				break
			}
			if diff := cmp.Diff(wantMails, mails); diff != "" || !c.isGone() || at.Before(wantTime) || at.After(wantTime.Add(12*time.Hour)) {
				t.Errorf("crash at write %d (after: %v): gone: %v, at %s, want %s; mails (-want +got)\n%s", crashAt, after, c.isGone(), at, wantTime, diff)
			}
		}
	}
}
