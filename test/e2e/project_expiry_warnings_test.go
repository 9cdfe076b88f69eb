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
	"sluice.dev/lifecycle/expiry"
)

// A project of a month expires at its end, after a mail to its owner for each lead that fits and one to the contacts of its
// department, and not a second earlier.
func TestProjectExpiresAfterItsWarnings(t *testing.T) {
	c := newPolicyTimeCluster(t)
	owner := v1alpha1.Contact{Name: "Cleo", Email: "cleo@example.org"}
	desk := expiryDesk
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "months"}, Spec: v1alpha1.DepartmentSpec{
		Contacts: []v1alpha1.Contact{desk},
		Projects: v1alpha1.ProjectTerms{Validity: ptr.To(period.MustParsePeriod("P1M"))},
		Notices:  v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin", ProjectExpiry: []period.Duration{period.MustParseDuration("7d"), period.MustParseDuration("1d")}},
	}}
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "one-month"}, Spec: v1alpha1.ProjectSpec{
		Department: department.Name, Owners: []v1alpha1.Owner{{Contact: owner}},
	}}
	for _, object := range []client.Object{department, project} {
		if err := c.adminClient.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	phase := func(want v1alpha1.ProjectPhase, isClosed bool) {
		t.Helper()
		c.eventuallyAfterStep(t, func() error {
			if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(project), project); err != nil {
				return err
			}
			if s := &project.Status; s.Phase != want || (s.ClosedAt != nil) != isClosed {
				return unexpectedState("the phase is "+string(want), s)
			}
			return nil
		})
	}
	mails := func(address v1alpha1.EmailAddress, want int) {
		t.Helper()
		c.eventuallyAfterStep(t, func() error {
			if got := c.readMailsTo(t, string(address)); len(got) != want {
				return unexpectedState("mails to "+string(address), len(got))
			}
			return nil
		})
	}
	phase(v1alpha1.ProjectActive, false)
	if project.Status.Next == nil || project.Status.ExpiresAt == nil {
		t.Fatalf("no end is scheduled: %+v", project.Status)
	}
	end := project.Status.Next.At.Time
	due := expiry.DepartmentTerms(department).StartingWith(project, c.clockFile).DueTimes(&project.Status)
	if len(due) != 2 {
		t.Fatalf("warnings %v, want 2", due)
	}
	for i, warning := range due {
		c.advanceTimeTo(t, warning.DueAt)
		mails(owner.Email, i+1)
		phase(v1alpha1.ProjectExpiring, false)
	}
	mails(desk.Email, 1) // the last warning
	if at := project.Status.Next.At.Time; !at.Equal(end) {
		t.Errorf("the end moved from %s to %s, although all warnings were sent in time", end, at)
	}
	c.advanceTimeTo(t, end.Add(-5*time.Minute))
	phase(v1alpha1.ProjectExpiring, false)
	c.advanceTimeTo(t, end)
	phase(v1alpha1.ProjectExpired, true)
	mails(owner.Email, 3)
	mails(desk.Email, 2)
	if closed := project.Status.ClosedAt.Time; closed.Before(end) || closed.After(end.Add(10*time.Minute)) { // on a busy machine
		t.Errorf("closed at %s, want %s", closed, end)
	}
}
