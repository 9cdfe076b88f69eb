// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Projects of three departments over three years and more: a students' project is renewed while it expires and after it
// has expired, by itself once and then by approval; a research project is confirmed in time, confirmed late and then not
// at all; another never expires; one has an owner whom no mail reaches, so that the department's contacts are warned,
// and one has no recipient at all. Guards invariants 6 and 11 of the design, and that no step comes without its notice.
func TestProjectsExpireOverYears(t *testing.T) {
	c := newPolicyTimeCluster(t)
	validity := func(text string) *period.Period { return ptr.To(period.MustParsePeriod(text)) }
	students := c.createExpiryDepartment(t, "years-students", v1alpha1.ProjectTerms{
		Validity: validity("P6M"), Renewals: v1alpha1.RenewalTerms{SelfService: ptr.To(int32(1))},
	})
	research := c.createExpiryDepartment(t, "years-research", v1alpha1.ProjectTerms{
		Validity: validity("P12M"), AtExpiry: v1alpha1.ExpiryConfirm, DeleteAfter: ptr.To(period.MustParseDuration("60d")),
	}, func(d *v1alpha1.Department) { d.Spec.Notices.Digest = "0 8 * * *" })
	forever := c.createExpiryDepartment(t, "years-forever", v1alpha1.ProjectTerms{})
	alone := c.createExpiryDepartment(t, "years-alone", v1alpha1.ProjectTerms{Validity: validity("P6M")}, func(d *v1alpha1.Department) { d.Spec.Contacts = nil })
	unreachable := func(p *v1alpha1.Project) { p.Spec.Owners[0].Email = "gone@nowhere.invalid" }

	thesis := c.createExpiringProject(t, students, "years-thesis")
	lost := c.createExpiringProject(t, students, "years-lost", unreachable)
	stuck := c.createExpiringProject(t, alone, "years-stuck", unreachable)
	lab := c.createExpiringProject(t, research, "years-lab")
	service := c.createExpiringProject(t, forever, "years-service")

	var moments []moment
	at := func(when time.Time, do func()) { moments = append(moments, moment{when, do}) }
	c.planThesis(t, thesis, at)
	c.planUnreachable(t, lost, stuck, at)
	c.planLab(t, lab, at)
	at(lab.start.Start(berlinZone(t)).AddDate(10, 0, 0), func() {
		p := service.waitForPhase(t, v1alpha1.ProjectActive)
		if s := p.Status; s.Next != nil || s.ExpiresAt != nil || s.ClosedAt != nil {
			t.Errorf("after ten years, the status of a project without validity is %+v", s)
		}
		if mails := c.subjects(t, service.owner.Email); len(mails) > 0 {
			t.Errorf("the owner of a project without validity has the mails %q", mails)
		}
	})
	c.runMoments(t, moments)
}

// planThesis plans the life of a students' project: renewed in Expiring, then after it has expired.
func (c *policyTimeCluster) planThesis(t *testing.T, thesis *expiringProject, at func(time.Time, func())) {
	first, second, third := thesis.endOfPeriod(t, 1), thesis.endOfPeriod(t, 2), thesis.endOfPeriod(t, 3)
	pod := newPod(thesis.name, "new", withGPU)
	warned := 0
	warnings := func(deadline time.Time, days ...int) {
		for _, d := range days {
			at(thesis.dueAt(t, deadline, d), func() {
				warned++
				m := thesis.waitForOwnerMails(t, warned)
				if !strings.Contains(normalizeText(m.text), "sluice renew project/"+thesis.name) || !strings.Contains(m.text, string(expiryDesk.Email)) {
					t.Errorf("the warning %d days before %s does not say how to renew, and whom to write to:\n%s", d, deadline, m.text)
				}
				if len(m.events) != 1 || m.events[0].end != deadline.UTC().Format(calendarTime) {
					t.Errorf("the warning %d days before %s has the calendar entries %+v", d, deadline, m.events)
				}
				thesis.waitForPhase(t, v1alpha1.ProjectExpiring)
			})
		}
	}
	warnings(first, 30, 7)
	at(first.AddDate(0, 0, -3), func() {
		if _, err := thesis.sluiceAs(t, "stranger@example.org", "renew", "project/"+thesis.name); err == nil {
			t.Error("a stranger renewed the project")
		}
		if out := thesis.renew(t); !strings.Contains(out, "approved") {
			t.Errorf("sluice renew prints\n%s", out)
		}
		p := thesis.waitFor(t, "is renewed", func(s *v1alpha1.ProjectStatus) bool { return s.Phase == v1alpha1.ProjectActive && s.Periods == 2 })
		if !p.Status.ExpiresAt.Time.Equal(second) || p.Status.Expiry.SelfServiceRenewals != 1 {
			t.Errorf("renewed until %s, want %s: %+v", p.Status.ExpiresAt, second, p.Status.Expiry)
		}
		warned++ // the new end
		thesis.waitForOwnerMails(t, warned)
	})
	warnings(second, 30, 7, 1)
	at(second, func() {
		p := thesis.waitForPhase(t, v1alpha1.ProjectExpired)
		if p.Status.ClosedAt == nil || p.Status.ClosedAt.Time.Before(second) {
			t.Errorf("expired, and closed at %s; want %s", p.Status.ClosedAt, second)
		}
		warned++
		thesis.waitForOwnerMails(t, warned)
		c.eventuallyAfterStep(t, func() error {
			err := c.adminClient.Create(t.Context(), pod.DeepCopy(), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "sluice renew project/"+thesis.name) {
				return unexpectedState("a new pod is refused with the command that renews", err)
			}
			return nil
		})
	})
	at(second.AddDate(0, 0, 20), func() {
		thesis.renew(t, "--wait", "0")
		warned++ // the request
		thesis.waitForOwnerMails(t, warned)
		extensions := &v1alpha1.ExtensionList{}
		if err := c.adminClient.List(t.Context(), extensions, client.InNamespace(thesis.name)); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(extensions.Items, func(e v1alpha1.Extension) bool { return e.Status.Decision == "" })
		if i < 0 {
			t.Fatalf("no renewal awaits a decision: %+v", extensions.Items)
		}
		if out, err := c.sluiceAs(t, expiryAdministrator, "approve", extensions.Items[i].Name, "-n", thesis.name); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		p := thesis.waitFor(t, "is renewed", func(s *v1alpha1.ProjectStatus) bool { return s.Phase == v1alpha1.ProjectActive && s.Periods == 3 })
		if !p.Status.ExpiresAt.Time.Equal(third) || p.Status.ClosedAt != nil || p.Status.Expiry.LastRenewal.ApprovedBy != expiryAdministrator {
			t.Errorf("renewed: %+v, %+v", p.Status, p.Status.Expiry.LastRenewal)
		}
		c.eventuallyAfterStep(t, func() error { return c.adminClient.Create(t.Context(), pod.DeepCopy(), client.DryRunAll) })
		warned++
		thesis.waitForOwnerMails(t, warned)
	})
	// Nothing was sent before this end: it moves by the full notice, and the time to send the warning.
	at(third.AddDate(0, 0, 1), func() {
		thesis.waitFor(t, "has moved", func(s *v1alpha1.ProjectStatus) bool { return s.Next != nil && s.Next.At.After(third.AddDate(0, 0, 30)) })
	})
	at(third.AddDate(0, 0, 2).Add(-time.Hour), func() {
		p := thesis.waitFor(t, "is warned", func(s *v1alpha1.ProjectStatus) bool { return s.Expiry.FirstWarnedAt != nil && s.Next != nil })
		if end := p.Status.Next.At.Time; end.Before(p.Status.Expiry.FirstWarnedAt.AddDate(0, 0, 30)) || p.Status.ClosedAt != nil {
			t.Errorf("first warned at %s, the project ends at %s, closed at %s", p.Status.Expiry.FirstWarnedAt, end, p.Status.ClosedAt)
		}
	})
}

// planUnreachable plans a project whose owner gets no mail, in a department with a contact and in one without.
func (c *policyTimeCluster) planUnreachable(t *testing.T, lost, stuck *expiringProject, at func(time.Time, func())) {
	end := lost.endOfPeriod(t, 1)
	at(lost.dueAt(t, end, 30), func() {
		lost.waitFor(t, "has warned the contact", func(s *v1alpha1.ProjectStatus) bool { return s.Expiry != nil && s.Expiry.FirstWarnedAt != nil })
	})
	at(lost.dueAt(t, end, 1), func() {
		lost.waitFor(t, "has warned the contact a last time", func(s *v1alpha1.ProjectStatus) bool { return s.Expiry.LastWarnedAt != nil })
	})
	at(end.AddDate(0, 0, 2), func() {
		lost.waitForPhase(t, v1alpha1.ProjectExpired)
		if got := c.subjects(t, expiryDesk.Email); !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, lost.name) }) {
			t.Errorf("the contact has the mails %q; want one about %s", got, lost.name)
		}
		p := stuck.waitFor(t, "is not expired, and says why", func(s *v1alpha1.ProjectStatus) bool {
			return s.Phase == v1alpha1.ProjectExpiring && checkCondition(s.Conditions, v1alpha1.ConditionExpiryBlocked, metav1.ConditionTrue, "") == nil
		})
		if p.Status.ClosedAt != nil {
			t.Errorf("a project without a recipient is closed since %s", p.Status.ClosedAt)
		}
	})
}

// planLab plans a research project: confirmed in time, confirmed late, and then not at all.
func (c *policyTimeCluster) planLab(t *testing.T, lab *expiringProject, at func(time.Time, func())) {
	confirmed := func(period int32) {
		lab.renew(t)
		lab.waitFor(t, "is confirmed", func(s *v1alpha1.ProjectStatus) bool { return s.Phase == v1alpha1.ProjectActive && s.Periods == period })
	}
	first, second, third := lab.endOfPeriod(t, 1), lab.endOfPeriod(t, 2), lab.endOfPeriod(t, 3)
	at(first.Add(9*time.Hour), func() {
		lab.waitForPhase(t, v1alpha1.ProjectExpiring)
		confirmed(2)
	})
	at(second.Add(9*time.Hour), func() { lab.waitForPhase(t, v1alpha1.ProjectExpiring) })
	at(second.AddDate(0, 0, 55), func() { confirmed(3) })
	answer := third.AddDate(0, 0, 60) // deleteAfter
	at(lab.dueAt(t, answer, 60), func() {
		lab.waitFor(t, "is asked", func(s *v1alpha1.ProjectStatus) bool {
			return s.Phase == v1alpha1.ProjectExpiring && s.Expiry.FirstWarnedAt != nil
		})
	})
	at(lab.dueAt(t, answer, 1), func() {
		lab.waitFor(t, "is asked a last time", func(s *v1alpha1.ProjectStatus) bool { return s.Expiry.LastWarnedAt != nil })
	})
	at(answer.AddDate(0, 0, 1), func() {
		p := lab.waitForPhase(t, v1alpha1.ProjectPendingDeletion)
		if p.Status.ClosedAt != nil {
			t.Errorf("a project that no owner confirmed is closed since %s; it stays usable", p.Status.ClosedAt)
		}
		c.eventuallyAfterStep(t, func() error {
			return c.adminClient.Create(t.Context(), newPod(lab.name, "usable", withGPU), client.DryRunAll)
		})
		if got := c.subjects(t, expiryDesk.Email); !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, lab.name) }) {
			t.Errorf("the contact has the mails %q; want one about %s", got, lab.name)
		}
		confirmed(4)
	})
}
