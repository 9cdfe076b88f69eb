// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
)

// addClock creates the clock of a Job that runs and has a deadline.
func (c *fakeCluster) addClock(job string, deadline time.Time) reconcile.Request {
	c.t.Helper()
	started := metav1.NewTime(time.Now().Add(-time.Hour))
	clock := &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: v1alpha1.WorkloadClockName("batch", "Job", job)},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: job}},
		Status: v1alpha1.WorkloadClockStatus{
			RootUID: types.UID(job + "-uid"), State: v1alpha1.ClockStateRunning, RunningSince: &started,
			Deadline: &v1alpha1.ClockDeadline{At: metav1.NewTime(deadline), Reason: v1alpha1.EndMaxRuntime},
		},
	}
	status := clock.Status
	if err := c.rawClient.Create(c.t.Context(), clock); err != nil {
		c.t.Fatal(err)
	}
	clock.Status = status
	if err := c.rawClient.Status().Update(c.t.Context(), clock); err != nil {
		c.t.Fatal(err)
	}
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(clock)}
}

// Invariant 5: after an outage overdue workloads are decided first, before those of the initial list
// and those that changed since. A clock whose deadline comes with its requeue is overdue then; one that
// is not overdue any more loses its priority.
func TestOverdueClocksAreReconciledFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		names := map[reconcile.Request]string{}
		clock := func(job string, left time.Duration) reconcile.Request {
			request := c.addClock(job, time.Now().Add(left))
			names[request] = job
			return request
		}
		queue, ok := c.reconciler.newQueue("clock", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()).(priorityqueue.PriorityQueue[reconcile.Request])
		if !ok {
			t.Fatal("controller-runtime would not use the priorities of this queue")
		}
		defer queue.ShutDown()
		initial := priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}
		queue.AddWithOpts(initial, clock("listed", time.Hour), clock("listed-overdue", -time.Second))
		queue.Add(clock("changed", time.Hour))
		queue.Add(clock("changed-overdue", 0))
		queue.AddAfter(clock("requeued", time.Hour), time.Minute)
		queue.AddAfter(clock("requeued-due", time.Minute), time.Minute)
		queue.AddRateLimited(clock("failed-overdue", -time.Hour))
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(overduePriority)}, clock("extended", time.Hour))
		time.Sleep(2 * time.Minute)
		var got []string
		for queue.Len() > 0 {
			request, _ := queue.Get()
			queue.Done(request)
			got = append(got, names[request])
		}
		const overdue = 4
		slices.Sort(got[:overdue])
		slices.Sort(got[overdue : len(got)-1])
		want := []string{"changed-overdue", "failed-overdue", "listed-overdue", "requeued-due", "changed", "extended", "requeued", "listed"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order, sorted within a priority (-want +got):\n%s", diff)
		}
	})
}

// initialPods is a source that enqueues the owners of pods, as the pod cache does when it lists them.
type initialPods struct {
	source.TypedSyncingSource[directOwner]
	index *WorkloadIndex
	pods  []*podcache.Pod
}

func (s initialPods) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[directOwner]) error {
	for _, pod := range s.pods {
		for _, o := range s.index.handlePodChange(podcache.Change{After: pod}) {
			queue.Add(o)
		}
	}
	return nil
}

func (initialPods) WaitForSync(context.Context) error { return nil }

// Invariant 5: at a start the roots of overdue workloads are resolved first, then those of pods whose
// workload is unknown yet, such as pods of a ReplicaSet.
func TestRootsOfOverdueWorkloadsAreResolvedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		var pods []*podcache.Pod
		for i := range 6 {
			running, overdue, replicaSet := fmt.Sprint("running-", i), fmt.Sprint("overdue-", i), fmt.Sprint("replicaset-", i)
			for _, job := range []string{running, replicaSet, overdue} {
				c.startPod(job, "-pod")
				pods = append(pods, c.pods[types.UID(job+"-pod")])
			}
			c.addClock(running, time.Now().Add(time.Hour))
			c.addClock(overdue, time.Now().Add(-time.Hour))
		}
		queue := priorityqueue.New[directOwner]("workload-roots")
		defer queue.ShutDown()
		s := &podSyncSource{TypedSyncingSource: initialPods{index: c.workloads, pods: pods}, index: c.workloads, clocks: c.client}
		if err := s.Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		if err := s.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for queue.Len() > 0 {
			o, _ := queue.Get()
			queue.Done(o)
			kind, _, _ := strings.Cut(string(o.uid), "-")
			got = append(got, kind)
		}
		want := slices.Concat(slices.Repeat([]string{"overdue"}, 6), slices.Repeat([]string{"replicaset"}, 6), slices.Repeat([]string{"running"}, 6))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		select {
		case <-c.workloads.podsSynced:
		default:
			t.Error("the clock controller would wait for the pods for ever")
		}
	})
}
