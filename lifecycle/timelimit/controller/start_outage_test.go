// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit/suspend"
)

const testPool = "dgx"

// newOutageCluster returns a cluster with a node pool, and a Job for each of that many people.
func newOutageCluster(t *testing.T, people int) *fakeCluster {
	t.Helper()
	var jobs []client.Object
	for i := range people {
		job := newJob(fmt.Sprintf("job-%d", i))
		job.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: fmt.Sprintf("student-%d@example.org", i)}
		jobs = append(jobs, job)
	}
	c := newFakeCluster(t, append(jobs, &v1alpha1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: testPool}, Spec: v1alpha1.NodePoolSpec{NodeSelector: map[string]string{"pool": testPool}},
	}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1", Labels: map[string]string{"pool": testPool}}})...)
	c.setNodeReady("dgx-1", corev1.ConditionTrue)
	waitForWholeSecond()
	return c
}

// createStuckPod adds a pod of the Job in the pool that does not start, with this status.
func (c *fakeCluster) createStuckPod(job string, status corev1.PodStatus, node string) {
	c.t.Helper()
	c.bindPod(job, "-1")
	pod := c.pods[types.UID(job+"-1")]
	pod.Pool, pod.Node = testPool, node
	if pod.Admitted = node == ""; pod.Admitted {
		pod.BoundAt = time.Time{}
	}
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: pod.Name, UID: pod.UID}}
	_ = c.rawClient.Delete(c.t.Context(), object.DeepCopy()) // of an earlier attempt
	if err := c.rawClient.Create(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
	object.Status = status
	if err := c.rawClient.Status().Update(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
}

// repartition taints a node as the planner does.
func (c *fakeCluster) repartition(node string) {
	c.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":[{"key":"`+v1alpha1.TaintRepartitioning+`","effect":"NoSchedule"}]}}`))
	if err := c.rawClient.Patch(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch); err != nil {
		c.t.Fatal(err)
	}
}

// requestInstance makes a pod request a MIG instance.
func (c *fakeCluster) requestInstance(pod string) {
	c.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"containers":[{"name":"main","resources":{"limits":{"nvidia.com/mig-3g.20gb":"1"}}}]}}`))
	if err := c.rawClient.Patch(c.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: pod}}, patch); err != nil {
		c.t.Fatal(err)
	}
}

func (c *fakeCluster) movePool() {
	c.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodeSelector":{"moved":"away"}}}`))
	if err := c.rawClient.Patch(c.t.Context(), &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: testPool}}, patch); err != nil {
		c.t.Fatal(err)
	}
}

func (c *fakeCluster) deletePool() {
	c.t.Helper()
	if err := c.rawClient.Delete(c.t.Context(), &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: testPool}}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *fakeCluster) setHeld(held metav1.Condition) {
	c.t.Helper()
	held.Type, held.Reason = v1alpha1.ConditionStartTimeoutsHeld, "Test"
	pool := &v1alpha1.NodePool{}
	if err := c.rawClient.Get(c.t.Context(), client.ObjectKey{Name: testPool}, pool); err != nil {
		c.t.Fatal(err)
	}
	pool.Status.Conditions = []metav1.Condition{held}
	if err := c.rawClient.Status().Update(c.t.Context(), pool); err != nil {
		c.t.Fatal(err)
	}
}

var pullFails = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
	Image: "registry.example.org/cuda", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
}}}

func (c *fakeCluster) isSuspended(job string) bool {
	return ptr.Deref(c.getJob(job).Spec.Suspend, false)
}

func (c *fakeCluster) heldCondition() *metav1.Condition {
	c.t.Helper()
	var pool v1alpha1.NodePool
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Name: testPool}, &pool); err != nil {
		c.t.Fatal(err)
	}
	return meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionStartTimeoutsHeld)
}

// With the registry away for an hour, the workloads of twenty people are not stopped, also if lifecycle restarts. Those that do
// not start within twelve hours are. Guards that a start timeout counts only what its author causes.
func TestRegistryAwayForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const people = 20
		c := newOutageCluster(t, people)
		start := time.Now()
		for i := range people {
			c.createStuckPod(fmt.Sprintf("job-%d", i), pullFails, "dgx-1")
			c.advance(20 * time.Second)
		}
		c.advance(time.Until(start.Add(40 * time.Minute)))
		c.restart()
		c.advance(20 * time.Minute)
		held := c.heldCondition()
		if held == nil || held.Status != metav1.ConditionTrue || !strings.Contains(held.Message, "they share image registry.example.org/cuda, node dgx-1, reason ImagePullBackOff") {
			t.Errorf("condition %+v", held)
		}
		for i := range people {
			if c.isSuspended(fmt.Sprintf("job-%d", i)) {
				t.Errorf("the workload of student %d was stopped", i)
			}
			if i > 0 { // the image of one does not exist
				c.pods[types.UID(fmt.Sprintf("job-%d-1", i))].Running = true
			}
		}
		c.advance(11 * time.Hour)
		if c.isSuspended("job-0") {
			t.Error("it was stopped within twelve hours")
		}
		c.advance(2 * time.Hour)
		if !c.isSuspended("job-0") || c.isSuspended("job-1") {
			t.Errorf("suspended %t and %t, want the one that does not start", c.isSuspended("job-0"), c.isSuspended("job-1"))
		}
		if err := c.reconciler.releaseStartHolds(t.Context()); err != nil {
			t.Fatal(err)
		}
		if held := c.heldCondition(); held.Status != metav1.ConditionFalse {
			t.Errorf("condition %+v", held)
		}
	})
}

// Two people are no outage, and start timeouts of a pool are held once a day.
func TestStartTimeoutsHeldOnceADay(t *testing.T) {
	for name, tc := range map[string]struct {
		people, apart int
		held          *metav1.Condition
		want          bool
	}{
		"two people":                     {people: 2},
		"three people":                   {people: 3, want: true},
		"three people over half an hour": {people: 3, apart: 6},
		"three people, soon after another outage": {people: 3, held: &metav1.Condition{Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(
			time.Date(1999, 12, 31, 18, 0, 0, 0, time.UTC))}},
		"three people, a day after another outage": {people: 3, want: true, held: &metav1.Condition{Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(
			time.Date(1999, 12, 31, 12, 0, 0, 0, time.UTC))}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // its time begins in the year 2000
				c := newOutageCluster(t, tc.people)
				if tc.held != nil {
					c.setHeld(*tc.held)
				}
				for i := range tc.people {
					c.createStuckPod(fmt.Sprintf("job-%d", i), pullFails, "dgx-1")
					c.advance(time.Duration(tc.apart)*time.Minute + time.Second)
				}
				c.advance(45 * time.Minute)
				if held := !c.isSuspended("job-0"); held != tc.want {
					t.Errorf("held %t, want %t", held, tc.want)
				}
			})
		})
	}
}

// queueStopper puts workloads back as Kueue does: their pods end.
type queueStopper struct {
	*suspend.Stopper
	c     *fakeCluster
	times int
	// none is true if the workload has no queue that takes it back.
	none bool
}

func (s *queueStopper) PutBack(_ context.Context, target suspend.Target, now time.Time, ownFault bool) (time.Time, bool, error) {
	if s.none || ownFault && s.times >= 2 {
		return time.Time{}, false, nil
	}
	s.times++
	delete(s.c.pods, types.UID(target.Name+"-1"))
	return now.Add(5 * time.Minute), true, nil
}

// A workload that does not start is put back; it is stopped, the third time, only where the cause is its own.
func TestStartTimeoutPutsBack(t *testing.T) {
	unscheduled := func(message string) corev1.PodStatus {
		return corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message}}}
	}
	const noNode = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
	for name, tc := range map[string]struct {
		status   corev1.PodStatus
		node     string
		noQueue  bool
		notReady bool
		// repartitioned is true if a node of the pool is repartitioned all the time, and instances if the pods request MIG instances.
		repartitioned, instances bool
		// outage is true if the start timeouts of the pool are held all the time.
		outage bool
		// pool changes the node pool.
		pool    func(*fakeCluster)
		putBack int
		stopped bool
	}{
		"its image":                                 {status: pullFails, node: "dgx-1", putBack: 2, stopped: true},
		"its node selector":                         {status: unscheduled(noNode), putBack: 2, stopped: true},
		"its node selector, without queue":          {status: unscheduled(noNode), noQueue: true, stopped: true},
		"its image, in an outage":                   {status: pullFails, node: "dgx-1", outage: true},
		"its node selector, in an outage of others": {status: unscheduled(noNode), outage: true, putBack: 2, stopped: true},
		"its image, on a node that left its pool":   {status: pullFails, node: "dgx-1", pool: (*fakeCluster).movePool, putBack: 2, stopped: true},
		"its image, in a deleted pool":              {status: pullFails, node: "dgx-1", pool: (*fakeCluster).deletePool, putBack: 2, stopped: true},
		"a node that is not ready, in such a pool":  {node: "dgx-1", notReady: true, pool: (*fakeCluster).deletePool},
		"no room":                                   {status: unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), putBack: 5},
		"no room, without queue":                    {status: unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), noQueue: true},
		"a Secret or a volume is missing":           {node: "dgx-1", putBack: 2, stopped: true},
		"a node that is not ready":                  {node: "dgx-1", notReady: true},
		"a pool without a node":                     {status: unscheduled(noNode), notReady: true},
		"its image, while a node is repartitioned":  {status: pullFails, node: "dgx-1", repartitioned: true, instances: true, putBack: 2, stopped: true},
		"no room, while a node is repartitioned":    {status: unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), repartitioned: true, putBack: 5},
		"instances, while a node is repartitioned":  {status: unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/mig-3g.20gb."), repartitioned: true, instances: true},
		"instances, after a node was repartitioned": {status: unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/mig-3g.20gb."), instances: true, putBack: 5},
		"a kubelet, without queue":                  {node: "dgx-1", noQueue: true, stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newOutageCluster(t, 1)
				if tc.notReady {
					c.setNodeReady("dgx-1", corev1.ConditionFalse)
				}
				if tc.pool != nil {
					tc.pool(c)
				}
				if tc.outage {
					c.setHeld(metav1.Condition{Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()})
				}
				if tc.repartitioned {
					c.repartition("dgx-1")
				}
				queue := &queueStopper{Stopper: &suspend.Stopper{Client: c.client}, c: c, none: tc.noQueue}
				c.reconciler.Stopper = queue
				for range 5 {
					if c.pods["job-0-1"] == nil && !c.isSuspended("job-0") {
						c.createStuckPod("job-0", tc.status, tc.node)
						if tc.instances {
							c.requestInstance("job-0-1")
						}
					}
					c.advance(32 * time.Minute)
				}
				if queue.times != tc.putBack || c.isSuspended("job-0") != tc.stopped {
					t.Errorf("put back %d times, stopped %t; want %d and %t", queue.times, c.isSuspended("job-0"), tc.putBack, tc.stopped)
				}
			})
		})
	}
}
