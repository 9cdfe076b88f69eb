// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	netmail "net/mail"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
)

// textOf returns the mail of a Notice, without line breaks.
func textOf(t *testing.T, n v1alpha1.Notice) string {
	t.Helper()
	message, err := mail.Compose(mail.ComposeRequest{
		Notice: &n, From: netmail.Address{Address: "sluice@example.org"}, ReplyTo: "help@example.org", Domain: "example.org",
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(message.Text), " ")
}

// Each owner reads the command that renews the project, and to whom to write who cannot run it; each contact who the owners
// are, and the command that renews on behalf of one.
func TestMailsNameTheCommandAndTheContacts(t *testing.T) {
	const own, onBehalf = `sluice renew project/thesis --reason`, `sluice renew project/thesis --on-behalf-of ADRESSE --reason`
	for action, tc := range map[v1alpha1.ExpiryAction]struct {
		until time.Time
		last  string
	}{
		v1alpha1.ExpiryExpire:  {spring.AddDate(0, 6, 3), "Neue GPU-Pods werden nicht mehr zugelassen"},
		v1alpha1.ExpiryConfirm: {spring.AddDate(1, 0, 0), "ist bis Donnerstag, 1. Oktober 2026, 24:00 Uhr MESZ keine Bestätigung eingegangen"},
	} {
		t.Run(string(action), func(t *testing.T) {
			c := newCluster(t, newStudents("P6M", action), newThesis(spring, "anna", "ben"))
			c.runUntil(tc.until)
			recipients, found := map[string]int{}, false
			for _, n := range c.notices() {
				if n.Status.SentAt == nil {
					continue
				}
				text, to := textOf(t, n), string(n.Spec.Recipient.Name)
				recipients[to]++
				want := []string{own, "schreiben Sie bitte an desk (desk@example.org)"}
				if to == "desk" {
					want = []string{onBehalf, "anna (anna@example.org), ben (ben@example.org)", "als Ansprechperson der Abteilung"}
				}
				for _, part := range want {
					if !strings.Contains(text, part) {
						t.Errorf("the mail %s to %s lacks %q:\n%s", n.Spec.Kind, to, part, text)
					}
				}
				found = found || strings.Contains(text, tc.last)
			}
			if !found || recipients["anna"] < 4 || recipients["ben"] != recipients["anna"] || recipients["desk"] == 0 {
				t.Errorf("mails by recipient: %v; the last one as expected: %v", recipients, found)
			}
		})
	}
}

// A renewal on behalf of an owner names both people.
func TestMailOfRenewalNamesTheAdministrator(t *testing.T) {
	c := newCluster(t, newStudents("P6M", v1alpha1.ExpiryExpire), newThesis(spring, "anna"))
	c.runUntil(spring.AddDate(0, 5, 20))
	renewal := newRenewal("renewal", c.clock.now)
	renewal.Annotations[v1alpha1.AnnotationCreatedBy], renewal.Spec.OnBehalfOf = "dean@example.org", "anna@example.org"
	if err := c.client.Create(t.Context(), renewal); err != nil {
		t.Fatal(err)
	}
	renewal.Status = v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, DecidedBy: "approver@example.org"}
	if err := c.client.Status().Update(t.Context(), renewal); err != nil {
		t.Fatal(err)
	}
	c.runUntil(c.clock.now.Add(time.Hour))
	for _, n := range c.notices() {
		if n.Spec.Kind == v1alpha1.NoticeProjectRenewed {
			text := textOf(t, n)
			for _, part := range []string{
				"dean@example.org hat das Projekt im Namen von anna@example.org verlängert", "Genehmigt von: approver@example.org",
			} {
				if !strings.Contains(text, part) {
					t.Errorf("it lacks %q:\n%s", part, text)
				}
			}
			return
		}
	}
	t.Error("there is no mail about the renewal")
}

// The mail about the suspension counts the workloads that run, the one about a renewal those that were stopped and do not start again.
func TestMailsCountTheStoppedWorkloads(t *testing.T) {
	c := newExpiredThesis(t, endOfThesis(t))
	p := c.project()
	p.Status.Workloads, p.Status.MoreWorkloads = []v1alpha1.WorkloadUsage{{Kind: "Job", Name: "training"}}, 2
	if err := c.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.runUntil(endOfThesis(t).AddDate(0, 0, 15))
	for reason, name := range map[v1alpha1.EndReason]string{v1alpha1.EndProjectSuspended: "training", v1alpha1.EndMaxRuntime: "other"} {
		clock := &v1alpha1.WorkloadClock{}
		clock.Namespace, clock.Name, clock.Status.Stopped = "thesis", name, &v1alpha1.ClockStop{Reason: reason}
		if err := c.client.Create(t.Context(), clock); err != nil {
			t.Fatal(err)
		}
	}
	c.request("renewal", v1alpha1.ExtensionApproved, "")
	c.settle()
	got := map[string]string{}
	for _, n := range c.notices() {
		got[string(n.Spec.Kind)] = n.Spec.Inputs[mail.InputRunning] + n.Spec.Inputs[mail.InputStopped]
	}
	if got["ProjectSuspending"] != "3" || got["ProjectSuspended"] != "3" || got["ProjectRenewed"] != "1" {
		t.Errorf("workloads in the mails: %v", got)
	}
}

// The conditions name who set an exception.
func TestConditionsNameTheAuthorOfAnException(t *testing.T) {
	until := period.MustParseDate("2026-04-30")
	thesis := newThesis(spring, "anna")
	thesis.Annotations = map[string]string{v1alpha1.HeldByAnnotation: "dean@example.org"}
	thesis.Spec.Hold = &v1alpha1.Exception{Reason: "the examiner is ill", Until: &until}
	thesis.Spec.Exempt = &v1alpha1.Exception{Reason: "shown to visitors"}
	c := newCluster(t, newStudents("P6M", v1alpha1.ExpiryExpire), thesis)
	c.settle()
	for kind, want := range map[string]string{
		v1alpha1.ConditionHeld:   "no step of the expiry happens until the end of 2026-04-30, as dean@example.org decided: the examiner is ill",
		v1alpha1.ConditionExempt: "the project does not expire until it is removed: shown to visitors",
	} {
		if got := meta.FindStatusCondition(c.project().Status.Conditions, kind); got == nil || got.Message != want {
			t.Errorf("%s is %+v, want %q", kind, got, want)
		}
	}
}

// Invariant 11: a hold on a project that nobody confirmed names when its owners are asked again, and not the end of the hold.
func TestMailAboutHeldConfirmationNamesTheNextOne(t *testing.T) {
	c := newCluster(t, newStudents("P1Y", v1alpha1.ExpiryConfirm), newThesis(spring, "anna"))
	c.runUntil(spring.AddDate(1, 2, 0))
	c.requirePhase(v1alpha1.ProjectPendingDeletion)
	until := period.MustParseDate("2027-06-30")
	update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Hold = &v1alpha1.Exception{Reason: "a strike", Until: &until} })
	c.settle()
	c.requirePhase(v1alpha1.ProjectActive)
	var text string
	for _, n := range c.notices() {
		if n.Spec.Inputs[mail.InputCause] == mail.CauseDeletionDismissed && n.Spec.Recipient.Email == "anna@example.org" {
			text = textOf(t, n)
		}
	}
	c.runUntil(spring.AddDate(1, 5, 0))
	if want := "ab " + "Mittwoch, 1. März 2028"; !strings.Contains(text, want) || strings.Contains(text, "2027") ||
		!c.project().Status.ExpiresAt.Time.Equal(time.Date(2028, 3, 2, 0, 0, 0, 0, c.zone)) {
		t.Errorf("the project ends at %s, and the mail lacks %q:\n%s", c.project().Status.ExpiresAt, want, text)
	}
}
