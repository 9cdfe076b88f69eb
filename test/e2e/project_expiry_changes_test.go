// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// planCreatedAgain plans a project that is deleted after its first warnings, and created again under its name.
func (f *expiryFaults) planCreatedAgain(t *testing.T, d *v1alpha1.Department, former *expiringProject) {
	first, mails := former.endOfPeriod(t, 1), &[]ownerMail{}
	created := first.AddDate(0, 0, -4).Add(-time.Hour)
	next := &expiringProject{
		policyTimeCluster: f.policyTimeCluster, name: former.name, owner: former.owner, department: d, start: period.DateOf(created, berlinZone(t)),
	}
	end := next.endOfPeriod(t, 1)
	f.warned(t, former, mails, first, 30, 7)
	f.at(created, func() {
		old := former.waitForPhase(t, v1alpha1.ProjectExpiring)
		if err := f.adminClient.Delete(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		f.eventuallyAfterStep(t, func() error {
			if err := f.adminClient.Get(t.Context(), client.ObjectKeyFromObject(old), old); !apierrors.IsNotFound(err) {
				return unexpectedState("the former project is gone", err)
			}
			return nil
		})
		f.createExpiringProject(t, d, former.name, func(p *v1alpha1.Project) { p.Spec.Owners = []v1alpha1.Owner{former.owner} })
		next.requireNext(t, v1alpha1.ProjectActive, end)
		*mails = append(*mails, ownerMail{subject: deletedSubject, cancels: true})
		next.waitForOwnerMails(t, len(*mails))
	})
	f.warned(t, next, mails, end, 30, 7, 1)
	f.expired(t, next, mails, end)
	f.expectMails(t, next, mails)
}

// loseStatus empties the status of a project, as a restore without it does.
func (e *expiringProject) loseStatus(t *testing.T) {
	t.Helper()
	e.eventuallyAfterStep(t, func() error {
		p := &v1alpha1.Project{}
		if err := e.adminClient.Get(t.Context(), client.ObjectKey{Name: e.name}, p); err != nil {
			return err
		}
		p.Status = v1alpha1.ProjectStatus{}
		return e.adminClient.Status().Update(t.Context(), p)
	})
}

// planStatusLost plans a project that loses its status while it expires, and one that does so when it has expired.
func (f *expiryFaults) planStatusLost(t *testing.T, warned, ended *expiringProject) {
	first, second := warned.endOfPeriod(t, 1), warned.endOfPeriod(t, 2)
	warnedMails, endedMails := &[]ownerMail{}, &[]ownerMail{}
	lose := func(e *expiringProject, mails *[]ownerMail) {
		e.loseStatus(t)
		e.requireNext(t, v1alpha1.ProjectActive, second)
		*mails = append(*mails, ownerMail{subject: renewedSubject, end: second})
		e.waitForOwnerMails(t, len(*mails))
	}
	f.warned(t, warned, warnedMails, first, 30, 7)
	f.at(first.AddDate(0, 0, -4), func() { lose(warned, warnedMails) })
	f.warned(t, ended, endedMails, first, 30, 7, 1)
	f.expired(t, ended, endedMails, first)
	f.at(first.AddDate(0, 0, 10), func() { lose(ended, endedMails) })
	for e, mails := range map[*expiringProject]*[]ownerMail{warned: warnedMails, ended: endedMails} {
		f.warned(t, e, mails, second, 30, 7, 1)
		f.expired(t, e, mails, second)
		f.expectMails(t, e, mails)
	}
}

// planDenied plans a project whose second renewal is denied.
func (f *expiryFaults) planDenied(t *testing.T, e *expiringProject) {
	first, second, mails := e.endOfPeriod(t, 1), e.endOfPeriod(t, 2), &[]ownerMail{}
	f.warned(t, e, mails, first, 30, 7)
	f.at(first.AddDate(0, 0, -3), func() {
		e.renew(t)
		e.requireNext(t, v1alpha1.ProjectActive, second)
		*mails = append(*mails, ownerMail{subject: renewedSubject, end: second})
		e.waitForOwnerMails(t, len(*mails))
	})
	f.warned(t, e, mails, second, 30, 7)
	f.at(second.AddDate(0, 0, -3), func() {
		desk := len(f.readMailsTo(t, string(expiryDesk.Email)))
		e.renew(t, "--wait", "0")
		*mails = append(*mails, ownerMail{subject: ""})
		e.waitForOwnerMails(t, len(*mails))
		name := e.openRenewal(t)
		if out, err := f.sluiceAs(t, expiryAdministrator, "deny", name, "-n", e.name, "--message", "others wait"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		*mails = append(*mails, ownerMail{subject: ""})
		if m := e.waitForOwnerMails(t, len(*mails)); !strings.Contains(m.text, "others wait") {
			t.Errorf("the denial does not say why:\n%s", m.text)
		}
		f.eventuallyAfterStep(t, func() error {
			if got := f.subjects(t, expiryDesk.Email)[desk:]; len(got) != 2 {
				return unexpectedState("the contact learns of the request and of the denial", got)
			}
			return nil
		})
		e.requireNext(t, v1alpha1.ProjectExpiring, second)
	})
	f.warned(t, e, mails, second, 1)
	f.expired(t, e, mails, second)
	f.expectMails(t, e, mails)
}

// openRenewal returns the name of the renewal that awaits a decision.
func (e *expiringProject) openRenewal(t *testing.T) string {
	t.Helper()
	extensions := &v1alpha1.ExtensionList{}
	if err := e.adminClient.List(t.Context(), extensions, client.InNamespace(e.name)); err != nil {
		t.Fatal(err)
	}
	for _, extension := range extensions.Items {
		if extension.Status.Decision == "" {
			return extension.Name
		}
	}
	t.Fatalf("no renewal awaits a decision: %+v", extensions.Items)
	return ""
}

// planExceptions plans a project that is held while it expires, and exempt when it expires again.
func (f *expiryFaults) planExceptions(t *testing.T, e *expiringProject) {
	first, second, mails := e.endOfPeriod(t, 1), e.endOfPeriod(t, 2), &[]ownerMail{}
	until := period.DateOf(first.AddDate(0, 0, 19), berlinZone(t))
	change := func(do func(*v1alpha1.ProjectSpec)) {
		t.Helper()
		f.eventuallyAfterStep(t, func() error {
			p := &v1alpha1.Project{}
			if err := e.adminClient.Get(t.Context(), client.ObjectKey{Name: e.name}, p); err != nil {
				return err
			}
			do(&p.Spec)
			return e.adminClient.Update(t.Context(), p)
		})
	}
	f.warned(t, e, mails, first, 30, 7)
	f.at(first.AddDate(0, 0, -4), func() {
		change(func(s *v1alpha1.ProjectSpec) {
			s.Hold = &v1alpha1.Exception{Reason: "the second examiner is ill", Until: &until}
		})
	})
	held := func() {
		e.waitFor(t, "is held", func(s *v1alpha1.ProjectStatus) bool {
			return s.Phase == v1alpha1.ProjectExpiring && s.Next == nil && s.ExpiresAt == nil && s.ClosedAt == nil &&
				checkCondition(s.Conditions, v1alpha1.ConditionHeld, metav1.ConditionTrue, "") == nil
		})
		e.waitForOwnerMails(t, len(*mails))
	}
	f.at(first.AddDate(0, 0, -4), held)
	f.at(first.AddDate(0, 0, 10), held)
	f.at(until.End(berlinZone(t)), func() {
		e.requireNext(t, v1alpha1.ProjectActive, second)
		*mails = append(*mails, ownerMail{subject: renewedSubject, end: second})
		e.waitForOwnerMails(t, len(*mails))
	})
	f.warned(t, e, mails, second, 30, 7)
	f.at(second.AddDate(0, 0, -4), func() {
		change(func(s *v1alpha1.ProjectSpec) { s.Exempt = &v1alpha1.Exception{Reason: "shown to visitors"} })
		e.waitFor(t, "is exempt", func(s *v1alpha1.ProjectStatus) bool {
			return s.Phase == v1alpha1.ProjectActive && s.Next == nil &&
				checkCondition(s.Conditions, v1alpha1.ConditionExempt, metav1.ConditionTrue, "") == nil
		})
		*mails = append(*mails, ownerMail{subject: unlimitedSubject, cancels: true})
		e.waitForOwnerMails(t, len(*mails))
	})
	f.at(second.AddDate(0, 0, 1), func() {
		e.waitForPhase(t, v1alpha1.ProjectActive)
		e.waitForOwnerMails(t, len(*mails))
	})
	f.expectMails(t, e, mails)
}
