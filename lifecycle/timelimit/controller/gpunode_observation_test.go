// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// bindUnreportedPod adds a bound pod of the Job whose kubelet writes no status.
func (c *fakeCluster) bindUnreportedPod(job, uid string) {
	c.bindPod(job, uid)
	for _, pod := range c.pods {
		if pod.Name == job+uid {
			pod.StartedAt = time.Time{}
		}
	}
}

// writeDevices writes a sample in which the pods have devices.
func (c *fakeCluster) writeDevices(pods ...v1alpha1.PodUsage) {
	c.t.Helper()
	node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}}
	if err := c.rawClient.Create(c.t.Context(), node); err != nil {
		if err := c.rawClient.Get(c.t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			c.t.Fatal(err)
		}
	}
	node.Status.SampledAt, node.Status.Pods = ptr.To(metav1.Now().Rfc3339Copy()), pods
	if err := c.rawClient.Status().Update(c.t.Context(), node); err != nil {
		c.t.Fatal(err)
	}
}

func deviceOfTrain() v1alpha1.PodUsage {
	return v1alpha1.PodUsage{
		PodReference: v1alpha1.PodReference{UID: "train-1", Namespace: testNamespace, Name: "train-1"}, Devices: []string{"GPU-1"},
	}
}

// A pod whose status is never written holds its GPU like any other. Its clock runs from the
// first sample of the agent that shows this, and it is stopped at its limit. Guards
// invariant 4: no pod keeps a GPU longer because the kubelet cannot report it.
func TestUnreportedPodsWithDevicesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		waitForWholeSecond()
		c.bindUnreportedPod("train", "-1")
		c.writeDevices()
		c.advance(5 * time.Minute)
		observed := time.Now()
		c.writeDevices(deviceOfTrain())
		c.advance(10 * time.Minute)
		s := c.clockOf("train").Status
		if s.RunningSince == nil || !s.RunningSince.Equal(ptr.To(metav1.NewTime(observed))) || s.State != v1alpha1.ClockStateRunning {
			t.Fatalf("observed at %s, its clock has %+v", observed, s)
		}
		c.restart()
		c.advance(47*time.Hour + 40*time.Minute)
		if s := c.clockOf("train").Status; s.Stopped != nil || s.RunningSince == nil || !s.RunningSince.Equal(ptr.To(metav1.NewTime(observed))) {
			t.Fatalf("before its limit, and after a restart of lifecycle, its clock has %+v", s)
		}
		c.advance(11 * time.Minute)
		if s := c.clockOf("train").Status; s.Stopped == nil || s.Stopped.Reason != v1alpha1.EndMaxRuntime || !ptr.Deref(c.getJob("train").Spec.Suspend, false) {
			t.Errorf("after its limit its clock has %+v", s)
		}
	})
}

// The agent can show the devices of a pod before the kubelet has reported the pod, or while
// its image is being pulled. No time runs then.
func TestDevicesOfStartingPodsStartNoClock(t *testing.T) {
	for name, tc := range map[string]struct {
		reported bool
		after    time.Duration
	}{
		"within a minute of the binding": {false, firstStatusTimeout - time.Second},
		"image being pulled":             {true, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster(t, newJob("train"))
				waitForWholeSecond()
				c.bindUnreportedPod("train", "-1")
				if tc.reported {
					c.pods["train-1"].StartedAt = time.Now()
				}
				time.Sleep(tc.after)
				c.writeDevices(deviceOfTrain())
				c.advance(5 * time.Minute)
				if s := c.clockOf("train").Status; s.RunningSince != nil || s.StartingSince == nil {
					t.Errorf("its clock has %+v", s)
				}
			})
		})
	}
}
