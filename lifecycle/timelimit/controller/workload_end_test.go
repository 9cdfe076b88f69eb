// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// expectState checks the state of a workload's clock and the text of its end.
func (c *fakeCluster) expectState(job string, want v1alpha1.ClockState, ends string) {
	c.t.Helper()
	s := c.clockOf(job).Status
	if s.State != want || s.Local.Ends != ends {
		c.t.Errorf("%s is %s, ends %q; want %s, %q", job, s.State, s.Local.Ends, want, ends)
	}
}

// Protects invariant 11: a workload that finished, with success or not, or that was deleted is
// not shown as Paused, and after its clock was reset not as Pending.
func TestEndedWorkloadIsNotPaused(t *testing.T) {
	finish := func(c *fakeCluster, condition batchv1.JobConditionType) {
		job := c.getJob("train")
		job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}}
		if err := c.rawClient.Status().Update(c.t.Context(), job); err != nil {
			c.t.Fatal(err)
		}
	}
	remove := func(c *fakeCluster) {
		if err := c.rawClient.Delete(c.t.Context(), c.getJob("train")); err != nil {
			c.t.Fatal(err)
		}
	}
	tests := map[string]struct {
		// end ends the workload; late does so a moment after its last pod.
		end  func(*fakeCluster)
		late bool
		want v1alpha1.ClockState
		ends string
	}{
		"completed":                    {func(c *fakeCluster) { finish(c, batchv1.JobComplete) }, false, v1alpha1.ClockStateFinished, "finished"},
		"failed after its pod":         {func(c *fakeCluster) { finish(c, batchv1.JobFailed) }, true, v1alpha1.ClockStateFinished, "finished"},
		"deleted":                      {remove, false, v1alpha1.ClockStateDeleted, "deleted"},
		"deleted after its pod":        {remove, true, v1alpha1.ClockStateDeleted, "deleted"},
		"it exists and has no pod now": {func(*fakeCluster) {}, false, v1alpha1.ClockStatePaused, "after running for 48h"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster(t, newJob("train"))
				waitForWholeSecond()
				c.startPod("train", "-1")
				c.advance(2 * time.Hour)
				if tc.late {
					clear(c.pods)
					c.advance(time.Second)
				}
				tc.end(c)
				clear(c.pods)
				c.advance(20 * time.Second)
				c.expectState("train", tc.want, tc.ends)
				if tc.want == v1alpha1.ClockStatePaused {
					return
				}
				c.advance(3 * time.Hour) // beyond the time after which the clock is reset
				c.expectState("train", tc.want, tc.ends)
			})
		})
	}
}

// Protects invariant 11: the hourly search finds what finished or was deleted while its end was
// not observed.
func TestLateEndIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("failed"), newJob("gone"))
		waitForWholeSecond()
		c.startPod("failed", "-1")
		c.startPod("gone", "-1")
		c.advance(time.Minute)
		clear(c.pods)
		c.advance(10 * time.Minute)
		c.expectState("failed", v1alpha1.ClockStatePaused, "after running for 48h")
		job := c.getJob("failed")
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
		if err := c.rawClient.Status().Update(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if err := c.rawClient.Delete(t.Context(), c.getJob("gone")); err != nil {
			t.Fatal(err)
		}
		if err := c.reconciler.removeExpiredClocks(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.advance(0)
		c.expectState("failed", v1alpha1.ClockStateFinished, "finished")
		c.expectState("gone", v1alpha1.ClockStateDeleted, "deleted")
	})
}

// Protects invariant 11: a workload that was created again under the name of an ended one has
// not ended.
func TestNameOfEndedWorkloadIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		for _, name := range []string{"completed", "deleted"} {
			c.create(jobKind, name, alice)
		}
		c.advance(time.Hour)
		c.complete(jobKind, "completed")
		c.delete(jobKind, "completed")
		c.delete(jobKind, "deleted")
		c.advance(time.Minute)
		c.withoutNodes = true
		for _, name := range []string{"deleted", "completed"} {
			c.create(jobKind, name, alice)
			s := c.clockStatus(jobKind, name)
			if s.CompletedAt != nil || s.MissingSince != nil || s.State == v1alpha1.ClockStateFinished || s.State == v1alpha1.ClockStateDeleted {
				t.Errorf("%s: %s, completed at %v, missing since %v", name, s.State, s.CompletedAt, s.MissingSince)
			}
		}
	})
}
