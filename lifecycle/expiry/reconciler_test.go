// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	if s := c.project().Status; s.ClosedAt == nil || !s.ClosedAt.Time.Equal(end) || s.Next != nil || !s.ExpiresAt.Time.Equal(end) {
		t.Errorf("after: %+v", s)
	}
	writes := c.writes
	c.runUntil(end.AddDate(1, 0, 0))
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
