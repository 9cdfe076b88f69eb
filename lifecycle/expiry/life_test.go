// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// A research project is asked each year whether it is still needed. An answer renews it, also a late one; without an
// answer it awaits the decision about its deletion, and stays usable.
func TestConfirmationAtThreeAnniversaries(t *testing.T) {
	c := newCluster(t, newStudents("P1Y", v1alpha1.ExpiryConfirm), newThesis(spring, "anna"))
	anniversary := func(n int) time.Time { return time.Date(2026+n, 3, 2, 0, 0, 0, 0, c.zone) }
	c.runUntil(anniversary(1).AddDate(0, 0, -2))
	c.requirePhase(v1alpha1.ProjectActive)
	c.runUntil(anniversary(1).AddDate(0, 0, 3))
	c.requirePhase(v1alpha1.ProjectExpiring)
	if s := c.project().Status; !s.ExpiresAt.Time.Equal(anniversary(1)) || s.Next.Phase != v1alpha1.ProjectPendingDeletion ||
		!s.Next.At.Time.Equal(time.Date(2027, 4, 1, 0, 0, 0, 0, c.zone)) {
		t.Errorf("asked: expires %s, next %+v", s.ExpiresAt, s.Next)
	}
	c.request("first-year", v1alpha1.ExtensionApproved, "")
	c.settle()
	c.requirePhase(v1alpha1.ProjectActive)

	c.runUntil(anniversary(2).AddDate(0, 2, 0))
	c.requirePhase(v1alpha1.ProjectPendingDeletion)
	c.request("second-year", v1alpha1.ExtensionApproved, "")
	c.settle()
	c.requirePhase(v1alpha1.ProjectActive)

	c.runUntil(anniversary(4))
	c.requirePhase(v1alpha1.ProjectPendingDeletion)
	if s := c.project().Status; s.ClosedAt != nil || s.Periods != 3 || s.Expiry.SelfServiceRenewals != 2 {
		t.Errorf("unanswered: %+v %+v", s, s.Expiry)
	}
	want := []string{
		"2027-03-01 ProjectConfirm anna", "2027-03-05 ProjectRenewed anna",
		"2028-03-01 ProjectConfirm anna", "2028-03-24 ProjectConfirm anna", "2028-03-30 ProjectConfirm anna",
		"2028-04-01 ProjectDeletion anna", "2028-04-01 ProjectDeletion desk", "2028-05-02 ProjectRenewed anna",
		"2029-03-01 ProjectConfirm anna", "2029-03-24 ProjectConfirm anna", "2029-03-30 ProjectConfirm anna",
		"2029-04-01 ProjectDeletion anna", "2029-04-01 ProjectDeletion desk",
	}
	if diff := cmp.Diff(want, c.sentMails()); diff != "" {
		t.Errorf("mails (-want +got)\n%s", diff)
	}
}

// A warning that could not be sent yet is not sent any more once its project is deleted.
func TestDeletedProjectIsNotWarned(t *testing.T) {
	c := newCluster(t, newStudents("P6M", v1alpha1.ExpiryExpire), newThesis(spring, "anna"))
	update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Finalizers = []string{v1alpha1.FinalizerProject} })
	c.settle()
	due := DepartmentTerms(newStudents("P6M", v1alpha1.ExpiryExpire)).StartingWith(c.project(), c.clock).DueTimes(&c.project().Status)
	c.clock.now = due[0].DueAt // its digest was not sent yet
	c.reconcile()
	if n := c.notices(); len(n) != 1 || n[0].Status.Phase != "" {
		t.Fatalf("notices: %+v", n)
	}
	if err := c.client.Delete(t.Context(), newThesis(spring)); err != nil {
		t.Fatal(err)
	}
	c.reconcile()
	if n := c.notices(); len(n) != 1 || n[0].Status.Phase != v1alpha1.NoticeSuperseded {
		t.Errorf("after the deletion: %+v", n)
	}
}

// Each change of what the expiry depends on leads to a phase that has full notice, and people learn of an end that no
// longer holds.
func TestChangedProjects(t *testing.T) {
	zone := berlin(t)
	end := time.Date(2026, 9, 2, 0, 0, 0, 0, zone)
	students := func() *v1alpha1.Department { return newStudents("P6M", v1alpha1.ExpiryExpire) }
	for name, tc := range map[string]struct {
		created time.Time
		live    func(c *cluster)
		phase   v1alpha1.ProjectPhase
		// expiresAt is empty for none. mails are of the kind ProjectRenewed.
		expiresAt string
		renewed   int
		condition string
	}{
		"validity switched on after three years": {spring, func(c *cluster) {
			update(c, students(), func(d *v1alpha1.Department) { d.Spec.Projects.Validity = nil })
			c.runUntil(spring.AddDate(3, 0, 0))
			update(c, students(), func(d *v1alpha1.Department) { d.Spec.Projects.Validity = ptr.To(period.MustParsePeriod("P6M")) })
			c.settle()
		}, v1alpha1.ProjectActive, "2029-09-02", 0, ""},
		"held while it expires": {spring, func(c *cluster) {
			c.runUntil(end.AddDate(0, 0, -3))
			update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Hold = &v1alpha1.Exception{Reason: "an exam"} })
			c.runUntil(end.AddDate(0, 1, 0))
		}, v1alpha1.ProjectExpiring, "", 0, v1alpha1.ConditionHeld},
		"the hold has ended": {spring, func(c *cluster) {
			c.runUntil(end.AddDate(0, 0, -3))
			until := period.MustParseDate("2026-10-15")
			update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Hold = &v1alpha1.Exception{Reason: "an exam", Until: &until} })
			c.runUntil(end.AddDate(0, 3, 0))
		}, v1alpha1.ProjectActive, "2027-03-02", 1, ""},
		"exempt after its expiry": {spring, func(c *cluster) {
			c.runUntil(end.AddDate(0, 1, 0))
			update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Exempt = &v1alpha1.Exception{Reason: "a chair"} })
			c.runUntil(end.AddDate(0, 2, 0))
		}, v1alpha1.ProjectActive, "", 1, v1alpha1.ConditionExempt},
		"the status was lost": {spring, func(c *cluster) {
			c.runUntil(end.AddDate(0, 1, 0))
			p := c.project()
			p.Status = v1alpha1.ProjectStatus{Namespace: p.Status.Namespace}
			if err := c.client.Status().Update(c.t.Context(), p); err != nil {
				c.t.Fatal(err)
			}
			c.settle()
		}, v1alpha1.ProjectActive, "2027-03-02", 1, ""},
		"the status was lost before a warning": {spring, func(c *cluster) {
			c.runUntil(end.AddDate(0, -3, 0))
			p := c.project()
			p.Status = v1alpha1.ProjectStatus{Namespace: p.Status.Namespace}
			if err := c.client.Status().Update(c.t.Context(), p); err != nil {
				c.t.Fatal(err)
			}
			c.settle()
		}, v1alpha1.ProjectActive, "2026-09-02", 0, ""},
		"another time zone while it expires": {spring, func(c *cluster) {
			c.runUntil(end.AddDate(0, 0, -3))
			update(c, students(), func(d *v1alpha1.Department) { d.Spec.Notices.TimeZone = "America/New_York" })
			c.runUntil(end.Add(-time.Hour))
		}, v1alpha1.ProjectExpiring, "2026-09-02", 0, ""},
		"lifecycle was away for five weeks around the end": {spring, func(c *cluster) {
			c.runUntil(end.AddDate(0, 0, -32))
			c.clock.now = end.AddDate(0, 0, 5)
			c.runUntil(end.AddDate(0, 0, 6))
		}, v1alpha1.ProjectExpiring, "2026-10-08", 0, ""},
		"its department is gone": {spring, func(c *cluster) {
			c.runUntil(spring.AddDate(0, 1, 0))
			if err := c.client.Delete(c.t.Context(), students()); err != nil {
				c.t.Fatal(err)
			}
			c.runUntil(end.AddDate(0, 1, 0))
		}, v1alpha1.ProjectActive, "2026-09-02", 0, ""},
		"deleted": {spring, func(c *cluster) {
			c.runUntil(end.AddDate(0, 0, -3))
			update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Finalizers = []string{v1alpha1.FinalizerProject} })
			if err := c.client.Delete(c.t.Context(), newThesis(spring)); err != nil {
				c.t.Fatal(err)
			}
			c.settle()
		}, v1alpha1.ProjectDeleting, "2026-09-02", 0, ""},
		"valid from a day in another year": {spring, func(c *cluster) {
			update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.ValidFrom = ptr.To(period.MustParseDate("2024-02-29")) })
			c.settle()
		}, v1alpha1.ProjectActive, "2026-08-30", 0, ""},
		"valid from a day in the last year of the calendar": {spring, func(c *cluster) {
			update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.ValidFrom = ptr.To(period.MustParseDate("9999-12-30")) })
			c.settle()
		}, v1alpha1.ProjectActive, "9999-12-31", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, students(), newThesis(tc.created, "anna"))
			tc.live(c)
			c.requirePhase(tc.phase)
			s := c.project().Status
			if at := s.ExpiresAt; (at == nil) != (tc.expiresAt == "") || at != nil && at.In(zone).Format(time.DateOnly) != tc.expiresAt {
				t.Errorf("expires at %v, want %s", at, tc.expiresAt)
			}
			var present []string
			for _, condition := range ownConditions {
				if meta.IsStatusConditionTrue(s.Conditions, condition) {
					present = append(present, condition)
				}
			}
			if got := strings.Join(present, " "); got != tc.condition {
				t.Errorf("conditions %q, want %q", got, tc.condition)
			}
			if got := strings.Count(strings.Join(c.sentMails(), "\n"), string(v1alpha1.NoticeProjectRenewed)); got != tc.renewed {
				t.Errorf("%d mails about another end, want %d: %v", got, tc.renewed, c.sentMails())
			}
			for _, n := range c.notices() {
				if isUnsentWarning(&n) && s.Next == nil {
					t.Errorf("%s would still be sent", n.Name)
				}
			}
		})
	}
}

// Events name the last day of a project, as the mails do, and not the day after it.
func TestEventsNameTheLastDay(t *testing.T) {
	c := newCluster(t, newStudents("P6M", v1alpha1.ExpiryExpire), newThesis(spring, "anna"))
	c.runUntil(time.Date(2026, 8, 20, 0, 0, 0, 0, c.zone))
	want := "the owners are warned: it becomes Expired at 2026-09-01 24:00 CEST; renew with: sluice renew project/thesis"
	for len(c.events.Events) > 0 {
		if event := <-c.events.Events; strings.HasSuffix(event, want) {
			return
		}
	}
	t.Errorf("no event %q", want)
}

// A project that is created again under its name has warnings of its own.
func TestProjectCreatedAgain(t *testing.T) {
	c := newCluster(t, newStudents("P6M", v1alpha1.ExpiryExpire), newThesis(spring, "anna"))
	end := time.Date(2026, 9, 2, 0, 0, 0, 0, c.zone)
	c.runUntil(end.AddDate(0, 0, -1))
	sent := len(c.sentMails())
	if err := c.client.Delete(c.t.Context(), newThesis(spring)); err != nil {
		t.Fatal(err)
	}
	again := newThesis(spring, "anna")
	again.UID, again.ResourceVersion = "another-uid", ""
	if err := c.client.Create(c.t.Context(), again); err != nil {
		t.Fatal(err)
	}
	c.runUntil(end.AddDate(0, 2, 0))
	c.requirePhase(v1alpha1.ProjectActive)
	if got := len(c.sentMails()); got != sent {
		t.Errorf("%d mails, want %d", got, sent)
	}
}
