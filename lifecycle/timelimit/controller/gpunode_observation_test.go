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
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
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

// The use of a pod is known only from a fresh sample with a last use. Guards invariant 11: what
// cannot be measured never counts as idle time.
func TestPodUtilization(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	started := now.Add(-time.Hour)
	pod := &podcache.Pod{UID: "u", StartedAt: started}
	for name, tc := range map[string]struct {
		sampled time.Duration // before now
		uses    []v1alpha1.PodUsage
		want    time.Time
		known   bool
	}{
		"used":                     {10 * time.Second, usedAt(now.Add(-time.Minute)), now.Add(-time.Minute), true},
		"not used since its start": {10 * time.Second, usedAt(started.Add(-time.Second)), started, true},
		"not measurable":           {10 * time.Second, []v1alpha1.PodUsage{{PodReference: v1alpha1.PodReference{UID: "u"}}}, time.Time{}, false},
		"not in the sample":        {10 * time.Second, nil, time.Time{}, false},
		"an old sample":            {inventory.SampleMaxAge + time.Second, usedAt(now), time.Time{}, false},
	} {
		node := &v1alpha1.GPUNode{Status: v1alpha1.GPUNodeStatus{SampledAt: &metav1.Time{Time: now.Add(-tc.sampled)}, Pods: tc.uses}}
		var active time.Time
		known := false
		if use := freshUsage(pod, node, now); use != nil {
			active, known = lastActive(pod, use)
		}
		if !active.Equal(tc.want) || known != tc.known {
			t.Errorf("%s: used at %s, %v; want %s, %v", name, active, known, tc.want, tc.known)
		}
	}
	for _, node := range []*v1alpha1.GPUNode{nil, {Status: v1alpha1.GPUNodeStatus{Pods: usedAt(now)}}} {
		if freshUsage(pod, node, now) != nil {
			t.Error("without a sample the use counts as known")
		}
	}
}

func usedAt(at time.Time) []v1alpha1.PodUsage {
	return []v1alpha1.PodUsage{{PodReference: v1alpha1.PodReference{UID: "u"}, LastActive: &metav1.Time{Time: at}}}
}
