// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// Pods on a lost node count no time after their grace period. On a node that is ready they
// count: their processes still hold the GPU.
func TestPodsOnLostNodeCountNoTime(t *testing.T) {
	const grace = time.Minute
	for name, tc := range map[string]struct {
		lose func(c *fakeCluster)
		want time.Duration
	}{
		"not ready": {func(c *fakeCluster) { c.setNodeReady("dgx-1", corev1.ConditionUnknown) }, 10*time.Hour + grace},
		"gone": {func(c *fakeCluster) {
			if err := c.rawClient.Delete(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}}); err != nil {
				c.t.Fatal(err)
			}
		}, 10*time.Hour + grace},
		"ready": {func(*fakeCluster) {}, 10*time.Hour + 50*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster(t, newJob("train"))
				c.setNodeReady("dgx-1", corev1.ConditionTrue)
				waitForWholeSecond()
				c.startPod("train", "-1")
				c.advance(10 * time.Hour)
				c.terminate("train-1")
				tc.lose(c)
				c.advance(50 * time.Minute) // less than resetAfter
				s := c.listClocks()[0].Status
				ran := time.Duration(s.AccumulatedSeconds) * time.Second
				if s.RunningSince != nil {
					ran += time.Since(s.RunningSince.Time)
				}
				if ran < tc.want || ran > tc.want+2*time.Second {
					t.Errorf("ran for %s, want %s", ran, tc.want)
				}
			})
		})
	}
}

// A node that is lost after the grace period of a pod is detected without an event of the
// pod.
func TestNodeLostAfterGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		c.setNodeReady("dgx-1", corev1.ConditionTrue)
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.terminate("train-1")
		c.advance(10 * time.Minute)
		c.setNodeReady("dgx-1", corev1.ConditionFalse)
		c.advance(time.Minute)
		if s := c.listClocks()[0].Status; s.State != v1alpha1.ClockStatePaused {
			t.Errorf("a minute after its node was lost the clock is %s", s.State)
		}
	})
}

// Protects invariant 5: a workload that is started again after its stop has a new clock, and
// is not stopped without a Notice because a pod of before is left on a lost node.
func TestPodOnLostNodeDoesNotOutliveStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		c.setNodeReady("dgx-1", corev1.ConditionTrue)
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(47 * time.Hour)
		c.setNodeReady("dgx-1", corev1.ConditionUnknown)
		c.terminate("train-1")
		c.advance(10 * time.Minute)
		c.startPod("train", "-2") // replaces it on another node
		c.pods["train-2"].Node = "dgx-2"
		c.advance(3 * time.Hour)
		job := c.getJob("train")
		if !ptr.Deref(job.Spec.Suspend, false) {
			t.Fatal("it was not stopped at its limit")
		}
		job.Spec.Suspend = nil
		if err := c.rawClient.Update(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		c.startPod("train", "-3")
		c.pods["train-3"].Node = "dgx-2"
		c.advance(40 * time.Hour)
		if ptr.Deref(c.getJob("train").Spec.Suspend, false) {
			t.Errorf("it was stopped again; the clock has %+v", c.listClocks()[0].Status.Stopped)
		}
	})
}
