// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Projects to which something happens on the way: lifecycle or mail is away for five weeks around the end, the validity
// is switched on, shortened and removed, the status is lost, the project is created again, a renewal is denied, and
// a hold or an exemption comes while it expires. Guards invariants 6 and 11 of the design: no step comes without its
// full notice, and each mail has the calendar entry of the end that holds then.
func TestProjectExpirySurvivesFaults(t *testing.T) {
	c := newPolicyTimeCluster(t)
	f := &expiryFaults{policyTimeCluster: c}
	zone := berlinZone(t)
	valid := func(text string) v1alpha1.ProjectTerms {
		return v1alpha1.ProjectTerms{Validity: ptr.To(period.MustParsePeriod(text))}
	}
	students := c.createExpiryDepartment(t, "faults-students", valid("P6M"), func(d *v1alpha1.Department) {
		d.Spec.Projects.Renewals.SelfService = ptr.To(int32(1))
		d.Spec.Oversubscription = v1alpha1.OversubscriptionAllow
	})
	shortened := c.createExpiryDepartment(t, "faults-shortened", valid("P12M"))
	late := c.createExpiryDepartment(t, "faults-late", v1alpha1.ProjectTerms{})
	noMail := c.createExpiryDepartment(t, "faults-no-mail", valid("P3M"))
	outage := c.createExpiryDepartment(t, "faults-outage", valid("P9M"))
	today := period.DateOf(c.clockFile.Now(), zone).Start(zone)
	since := func(years, months int) func(*v1alpha1.Project) {
		first := period.DateOf(today.AddDate(years, months, 0).Add(12*time.Hour), zone)
		return func(p *v1alpha1.Project) { p.Spec.ValidFrom = &first }
	}

	f.planMailPaused(t, c.createExpiringProject(t, noMail, "faults-unmailed"))
	f.planOutage(t, c.createExpiringProject(t, outage, "faults-unattended"))
	f.planValidityGiven(t, late, c.createExpiringProject(t, late, "faults-old", since(-3, 1)))
	fresh, warned := c.createExpiringProject(t, shortened, "faults-fresh"), c.createExpiringProject(t, shortened, "faults-warned", since(0, -7))
	f.planValidityShortened(t, shortened, fresh, warned)
	f.planCreatedAgain(t, students, c.createExpiringProject(t, students, "faults-again"))
	f.planStatusLost(t, c.createExpiringProject(t, students, "faults-lost"), c.createExpiringProject(t, students, "faults-ended"))
	f.planDenied(t, c.createExpiringProject(t, students, "faults-denied"))
	f.planExceptions(t, c.createExpiringProject(t, students, "faults-held"))
	c.runMoments(t, f.moments)
	for _, check := range f.checks {
		check()
	}
}

// expiryFaults are moments in the lives of several projects.
type expiryFaults struct {
	*policyTimeCluster
	moments []moment
	checks  []func()
}

func (f *expiryFaults) at(when time.Time, do func()) { f.moments = append(f.moments, moment{when, do}) }

// expectMails expects the mails to the owner, in order: a part of the subject each, and the end in its calendar entry.
func (f *expiryFaults) expectMails(t *testing.T, e *expiringProject, want *[]ownerMail) {
	f.checks = append(f.checks, func() {
		t.Helper()
		e.assertOwnerMails(t, *want)
	})
}

// planMailPaused plans five weeks without mail around the end of a project.
func (f *expiryFaults) planMailPaused(t *testing.T, e *expiringProject) {
	end, mails := e.endOfPeriod(t, 1), &[]ownerMail{}
	resumed := end.AddDate(0, 0, 3).Add(10 * time.Hour)
	moved := movedEnd(t, resumed)
	blocked := func() {
		p := e.waitFor(t, "says that mail is paused", func(s *v1alpha1.ProjectStatus) bool {
			return checkCondition(s.Conditions, v1alpha1.ConditionExpiryBlocked, metav1.ConditionTrue, v1alpha1.ReasonMailPaused) == nil
		})
		if p.Status.ClosedAt != nil || p.Status.Phase != v1alpha1.ProjectExpiring || !p.Status.Next.At.Time.Equal(end) {
			t.Errorf("while mail is paused: %+v", p.Status)
		}
	}
	f.at(end.AddDate(0, 0, -32), func() { f.pauseMail(t, "pause", "--reason", "the mail server moves") })
	f.at(e.dueAt(t, end, 1), blocked)
	f.at(resumed, func() {
		blocked()
		if got := e.subjects(t, e.owner.Email); len(got) > 0 {
			t.Errorf("while mail is paused, the owner got %q", got)
		}
		f.pauseMail(t, "resume")
		e.waitFor(t, "has another end, with full notice", func(s *v1alpha1.ProjectStatus) bool {
			return s.Next != nil && s.Next.At.Time.Equal(moved) &&
				checkCondition(s.Conditions, v1alpha1.ConditionExpiryBlocked, metav1.ConditionTrue, "") != nil
		})
	})
	f.warned(t, e, mails, moved, 30, 7, 1)
	f.expired(t, e, mails, moved)
	f.expectMails(t, e, mails)
}

// pauseMail pauses or resumes mail.
func (f *expiryFaults) pauseMail(t *testing.T, args ...string) {
	t.Helper()
	f.runSluice(t, append([]string{"notices"}, args...)...)
}

// planOutage plans five weeks without lifecycle around the end of a project.
func (f *expiryFaults) planOutage(t *testing.T, e *expiringProject) {
	end, mails := e.endOfPeriod(t, 1), &[]ownerMail{}
	back := end.AddDate(0, 0, 3).Add(10 * time.Hour)
	moved := movedEnd(t, back)
	f.at(end.AddDate(0, 0, -32), func() {
		f.restartLifecycle(t, func() { f.advanceTimeTo(t, back) })
		p := e.waitFor(t, "has another end, with full notice", func(s *v1alpha1.ProjectStatus) bool {
			return s.Next != nil && s.Next.At.Time.Equal(moved)
		})
		if p.Status.ClosedAt != nil {
			t.Errorf("closed at %s without a warning", p.Status.ClosedAt)
		}
	})
	f.warned(t, e, mails, moved, 30, 7, 1)
	f.expired(t, e, mails, moved)
	f.expectMails(t, e, mails)
}

// setValidity changes the validity of a department's projects; an empty text removes it.
func (f *expiryFaults) setValidity(t *testing.T, d *v1alpha1.Department, text string) {
	t.Helper()
	f.eventuallyAfterStep(t, func() error {
		if err := f.adminClient.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Spec.Projects.Validity = nil; text != "" {
			d.Spec.Projects.Validity = ptr.To(period.MustParsePeriod(text))
		}
		return f.adminClient.Update(t.Context(), d)
	})
}

// boundary returns the end of the n-th period of a validity, from the first day of the project.
func (e *expiringProject) boundary(t *testing.T, validity string, n int) time.Time {
	t.Helper()
	p := &v1alpha1.Project{}
	if err := e.adminClient.Get(t.Context(), client.ObjectKey{Name: e.name}, p); err != nil {
		t.Fatal(err)
	}
	return period.MustParsePeriod(validity).ExpiryOf(p.Spec.ValidFrom.Start(berlinZone(t)), n, berlinZone(t))
}

// planValidityGiven plans a project of three years whose department gets a validity shortly before one of its dates.
func (f *expiryFaults) planValidityGiven(t *testing.T, d *v1alpha1.Department, e *expiringProject) {
	mails := &[]ownerMail{}
	near, end := e.boundary(t, "P6M", 6), e.boundary(t, "P6M", 7)
	f.at(near.AddDate(0, 0, -20), func() {
		f.setValidity(t, d, "P6M")
		e.requireNext(t, v1alpha1.ProjectActive, end)
	})
	f.warned(t, e, mails, end, 30, 7, 1)
	f.expired(t, e, mails, end)
	f.expectMails(t, e, mails)
}

// planValidityShortened plans projects whose department shortens their validity, one of them after its warnings, and
// later removes it.
func (f *expiryFaults) planValidityShortened(t *testing.T, d *v1alpha1.Department, fresh, warned *expiringProject) {
	first, freshMails, warnedMails := warned.boundary(t, "P12M", 1), &[]ownerMail{}, &[]ownerMail{}
	freshEnd, warnedEnd := fresh.boundary(t, "P3M", 2), warned.boundary(t, "P3M", 5)
	f.warned(t, warned, warnedMails, first, 30, 7)
	f.at(first.AddDate(0, 0, -4), func() {
		f.setValidity(t, d, "P3M")
		fresh.requireNext(t, v1alpha1.ProjectActive, freshEnd)
		warned.requireNext(t, v1alpha1.ProjectActive, warnedEnd)
		*warnedMails = append(*warnedMails, ownerMail{subject: renewedSubject, end: warnedEnd})
		warned.waitForOwnerMails(t, len(*warnedMails))
	})
	f.warned(t, fresh, freshMails, freshEnd, 30, 7, 1)
	f.expired(t, fresh, freshMails, freshEnd)
	f.warned(t, warned, warnedMails, warnedEnd, 30)
	f.at(warnedEnd.AddDate(0, 0, -20), func() {
		f.setValidity(t, d, "")
		for e, mails := range map[*expiringProject]*[]ownerMail{fresh: freshMails, warned: warnedMails} {
			e.waitFor(t, "has no end", func(s *v1alpha1.ProjectStatus) bool {
				return s.Phase == v1alpha1.ProjectActive && s.Next == nil && s.ExpiresAt == nil && s.ClosedAt == nil
			})
			*mails = append(*mails, ownerMail{subject: unlimitedSubject, cancels: true})
			e.waitForOwnerMails(t, len(*mails))
		}
	})
	f.expectMails(t, fresh, freshMails)
	f.expectMails(t, warned, warnedMails)
}
