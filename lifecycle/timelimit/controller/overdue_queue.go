// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

// The priorities of requests. Others have the default, 0, or handler.LowPriority if they come
// from the initial list.
const (
	// overduePriority is that of workloads that must be stopped by now.
	overduePriority = 100
	// unknownPriority is that of pods whose workload is known only when its root is resolved. It
	// can be overdue.
	unknownPriority = 50
)

// overdueFirstQueue is the queue of the clock controller. After an outage, and when many
// deadlines pass at once, overdue clocks come first.
type overdueFirstQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	// isOverdueIn reports whether a clock will be overdue after a time.
	isOverdueIn func(clock reconcile.Request, after time.Duration) bool
}

// newQueue returns the queue of the clock controller.
func (r *Reconciler) newQueue(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return overdueFirstQueue{
		PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter }),
		isOverdueIn:   r.isOverdueIn,
	}
}

// isOverdueIn reads the clock from the cache. It returns false for a clock that cannot be read.
func (r *Reconciler) isOverdueIn(request reconcile.Request, after time.Duration) bool {
	var clock v1alpha1.WorkloadClock
	if err := r.Client.Get(context.Background(), request.NamespacedName, &clock, client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	return timelimit.IsOverdue(&clock.Status, r.Clock.FromReal(policytime.MachineNow().Add(after)))
}

// AddWithOpts implements [priorityqueue.PriorityQueue]. The controller requeues a request with
// its last priority, so that a clock that is not overdue any more loses it here.
func (q overdueFirstQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	other := min(ptr.Deref(o.Priority, 0), 0)
	for _, request := range requests {
		o.Priority = ptr.To(other)
		if q.isOverdueIn(request, o.After) {
			o.Priority = ptr.To(overduePriority)
		}
		q.PriorityQueue.AddWithOpts(o, request)
	}
}

// Add implements [workqueue.TypedInterface].
func (q overdueFirstQueue) Add(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{}, request)
}

// AddAfter implements [workqueue.TypedDelayingInterface].
func (q overdueFirstQueue) AddAfter(request reconcile.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, request)
}

// AddRateLimited implements [workqueue.TypedRateLimitingInterface].
func (q overdueFirstQueue) AddRateLimited(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, request)
}
