// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// deleteProject requests the deletion of the project. Its finalizer keeps it.
func (c *fakeCluster) deleteProject() {
	c.t.Helper()
	project := &v1alpha1.Project{}
	if err := c.rawClient.Get(c.t.Context(), client.ObjectKey{Name: testNamespace}, project); err != nil {
		c.t.Fatal(err)
	}
	project.Finalizers = []string{v1alpha1.FinalizerProject}
	if err := c.rawClient.Update(c.t.Context(), project); err != nil {
		c.t.Fatal(err)
	}
	if err := c.rawClient.Delete(c.t.Context(), project); err != nil {
		c.t.Fatal(err)
	}
}

func newJobOf(name, creator string) *batchv1.Job {
	job := newJob(name)
	job.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: creator}
	return job
}

// All GPU work of a project that is deleted is stopped by the verb of its kind, work without a limit
// or whose pods are not bound yet included: its namespace can stay. Each creator gets a Notice; the
// owners get one about the project. The stop limiter does not defer it. Guards invariant 2.
func TestDeletedProjectStopsItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJobOf("train", "kim@example.org"), newJobOf("queued", "lea"))
		c.reconciler.StopLimiter.MaxShare, c.reconciler.StopLimiter.MaxCount = 0, 0
		start := waitForWholeSecond()
		c.startPod("train", "-1")
		c.startPod("queued", "-1")
		c.pods["queued-1"].Node, c.pods["queued-1"].Running = "", false
		c.advance(time.Hour)
		if s := c.clockOf("train").Status; s.GPUs == nil || s.GPUs.String() != "1" {
			t.Errorf("the clock of a running workload has the GPUs %v, want 1", s.GPUs)
		}
		if got := len(c.listClocks()); got != 1 {
			t.Fatalf("%d clocks, want none for a pod that is not bound", got)
		}
		c.deleteProject()
		c.advance(time.Second)
		for _, name := range []string{"train", "queued"} {
			if !ptr.Deref(c.getJob(name).Spec.Suspend, false) {
				t.Errorf("%s runs on", name)
			}
		}
		c.advance(time.Minute)
		for _, clock := range c.listClocks() {
			if s := clock.Status; s.Stopped == nil || s.Stopped.Reason != v1alpha1.EndProjectDeleted || s.GPUs != nil {
				t.Errorf("clock %s: stopped %+v, GPUs %v", clock.Name, s.Stopped, s.GPUs)
			}
		}
		if len(c.pods) > 0 {
			t.Errorf("%d pods are left", len(c.pods))
		}
		if diff := cmp.Diff([]string{"WorkloadStopped 1h0m0s"}, c.noticeTexts(start)); diff != "" {
			t.Errorf("notices, of which the user without an address gets none (-want +got):\n%s", diff)
		}
	})
}

// Pods that are not bound are evicted like running ones if the stop has no effect.
func TestDeletedProjectEvictsUnboundPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		c.jobControllerDown = true
		s := &recordingStopper{Stopper: c.reconciler.Stopper, start: waitForWholeSecond()}
		c.reconciler.Stopper = s
		c.startPod("train", "-1")
		c.pods["train-1"].Node, c.pods["train-1"].Running = "", false
		c.deleteProject()
		c.advance(time.Hour)
		if s.evictions != maxEvictions {
			t.Errorf("%d evictions, want %d: %v", s.evictions, maxEvictions, s.attempts)
		}
		if condition := c.unstoppable("train"); condition == nil || condition.Reason != reasonNoEffect {
			t.Errorf("condition Unstoppable = %+v", condition)
		}
	})
}

// The work of a project whose department is gone is stopped, too: the project would never be deleted.
func TestDeletedProjectWithoutDepartmentStopsItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJobOf("train", "kim@example.org"))
		c.startPod("train", "-1")
		c.advance(time.Hour)
		c.deleteProject()
		department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: testDepartment}}
		if err := c.rawClient.Delete(t.Context(), department); err != nil {
			t.Fatal(err)
		}
		c.advance(time.Minute)
		if !ptr.Deref(c.getJob("train").Spec.Suspend, false) {
			t.Error("it runs on")
		}
	})
}
