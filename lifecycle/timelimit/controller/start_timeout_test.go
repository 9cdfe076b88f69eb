// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
)

// bindPod adds a pod of the Job that is bound and does not start.
func (c *fakeCluster) bindPod(job, uid string) {
	c.startPod(job, uid)
	for _, pod := range c.pods {
		if pod.Name == job+uid {
			pod.Running, pod.BoundAt, pod.StartedAt = false, time.Now(), time.Now()
		}
	}
}

// A pod whose image cannot be pulled holds its GPUs. Its workload has a clock from the
// binding, and is warned and stopped at the start timeout. No running time counts.
func TestPodsThatDoNotStartAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		start := waitForWholeSecond()
		c.setNodeReady("dgx-1", corev1.ConditionTrue)
		c.bindPod("train", "-1")
		c.advance(time.Second)
		clock := c.listClocks()[0]
		if clock.Status.StartingSince == nil || clock.Status.RootUID == "" || clock.Status.State != v1alpha1.ClockStatePending {
			t.Errorf("the clock of a starting workload has %+v", clock.Status)
		}
		c.advance(30*time.Minute - time.Second)
		if !ptr.Deref(c.getJob("train").Spec.Suspend, false) {
			t.Fatal("it holds its GPUs still")
		}
		if diff := cmp.Diff([]string{"WorkloadIdle 15m0s", "WorkloadStopped 30m0s"}, c.noticeTexts(start)); diff != "" {
			t.Errorf("notices (-want +got):\n%s", diff)
		}
		c.advance(time.Minute)
		if s := c.listClocks()[0].Status; s.Stopped == nil || s.Stopped.Reason != v1alpha1.EndStartTimeout || s.AccumulatedSeconds != 0 {
			t.Errorf("the clock has %+v, %d s", s.Stopped, s.AccumulatedSeconds)
		}
	})
}

// A workload with a running pod is not stopped because another one does not start, such as
// that of a failed rollout.
func TestRunningPodPreventsStartTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.bindPod("train", "-2")
		c.advance(10 * time.Hour)
		if ptr.Deref(c.getJob("train").Spec.Suspend, false) {
			t.Error("it was stopped")
		}
	})
}

// After a restart of lifecycle, a workload whose pods are not resolved yet seems to have none. That
// postpones neither its start timeout nor its idle timeout.
func TestStartTimeoutSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		start := waitForWholeSecond()
		c.setNodeReady("dgx-1", corev1.ConditionTrue)
		c.bindPod("train", "-1")
		c.advance(25 * time.Minute)
		before := c.clockOf("train").Status
		c.restart()
		c.workloads.handlePodChange(podcache.Change{After: c.pods["train-1"]})
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c.clockOf("train"))}
		result, err := c.reconciler.Reconcile(t.Context(), request)
		if err != nil || result.RequeueAfter == 0 {
			t.Fatalf("reconciled again after %s, %v", result.RequeueAfter, err)
		}
		if diff := cmp.Diff(before, c.clockOf("train").Status); diff != "" {
			t.Errorf("its clock changed (-before +after):\n%s", diff)
		}
		c.advance(5 * time.Minute)
		if !ptr.Deref(c.getJob("train").Spec.Suspend, false) {
			t.Error("it holds its GPUs still")
		}
		if diff := cmp.Diff([]string{"WorkloadIdle 15m0s", "WorkloadStopped 30m0s"}, c.noticeTexts(start)); diff != "" {
			t.Errorf("notices (-want +got):\n%s", diff)
		}
	})
}
