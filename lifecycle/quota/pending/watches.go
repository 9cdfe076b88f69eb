// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
)

// eventSettleDelay is the time for which changes are collected before a pass, in machine time. Rejections
// and quota updates come in bursts.
const eventSettleDelay = time.Second

// EventCacheOptions limits the event cache to the events and fields that this package reads.
func EventCacheOptions() (client.Object, cache.ByObject) {
	return &corev1.Event{}, cache.ByObject{
		Field: fields.OneTermEqualSelector("reason", reasonFailedCreate),
		Transform: func(object any) (any, error) {
			if event, ok := object.(*corev1.Event); ok {
				event.ManagedFields, event.Annotations, event.Labels = nil, nil, nil
			}
			return object, nil
		},
	}
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// enqueueSettled enqueues the requests of an object after eventSettleDelay.
func enqueueSettled(requests func(context.Context, client.Object) []reconcile.Request) handler.EventHandler {
	add := func(ctx context.Context, object client.Object, q requestQueue) {
		for _, request := range requests(ctx, object) {
			q.AddAfter(request, eventSettleDelay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requestQueue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requestQueue) { add(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requestQueue) { add(ctx, e.Object, q) },
	}
}

// rejectionEvents selects the events of pods that exceeded a quota.
var rejectionEvents = predicate.NewPredicateFuncs(func(object client.Object) bool {
	event, ok := object.(*corev1.Event)
	if !ok {
		return false
	}
	_, ok = ParseQuotaRejection(event.Message)
	return ok
})

// quotaStatusChanged selects quotas whose usage or limits changed.
var quotaStatusChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.ResourceQuota)
	after, ok2 := e.ObjectNew.(*corev1.ResourceQuota)
	return ok && ok2 && !equality.Semantic.DeepEqual(before.Status, after.Status)
}}

// requestsForNamespace returns the request for the project of an object's namespace.
func (r *Reconciler) requestsForNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByNamespace: object.GetNamespace()}); err != nil {
		log.FromContext(ctx).Error(err, "Failed to find project of namespace", "namespace", object.GetNamespace())
		return nil
	}
	return inventory.Requests(&projects)
}

func requestsForQuota(_ context.Context, object client.Object) []reconcile.Request {
	if name := object.GetLabels()[v1alpha1.LabelProject]; name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	}
	return nil
}

func requestForObject(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
}

// nodePoolsChanged selects projects that were created or deleted or whose guarantees changed.
var nodePoolsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.Project)
	after, ok2 := e.ObjectNew.(*v1alpha1.Project)
	return ok && ok2 && !equality.Semantic.DeepEqual(guaranteedQuotas(before), guaranteedQuotas(after))
}}

// guaranteedQuotas returns the guarantees in a project's status.
func guaranteedQuotas(project *v1alpha1.Project) []v1alpha1.PoolUsage {
	pools := []v1alpha1.PoolUsage{{GPUUsage: v1alpha1.GPUUsage{Guaranteed: project.Status.GPU.Guaranteed, Limit: project.Status.GPU.Limit}}}
	for _, use := range project.Status.NodePools {
		pools = append(pools, v1alpha1.PoolUsage{Name: use.Name, GPUUsage: v1alpha1.GPUUsage{Guaranteed: use.Guaranteed, Limit: use.Limit}})
	}
	return pools
}

// podChangeSource enqueues a project when the GPU quota of its pods changes, while this process
// is the leader.
type podChangeSource struct {
	reconciler *Reconciler
	// synced is set once all pods that existed before are known. They are not recorded as new
	// starts.
	synced atomic.Bool
}

// Start implements source.TypedSource.
func (p *podChangeSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	p.reconciler.leadingSince = policytime.MachineNow()
	cancel := p.reconciler.Pods.Subscribe(func(c podcache.Change) {
		project := c.Pod().Project
		if project == "" {
			return
		}
		recorded := false
		if p.synced.Load() {
			recorded = p.reconciler.waitTimes.recordStart(c)
		}
		if recorded || !hasSameCharge(c.Before, c.After) {
			queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: project}}, eventSettleDelay)
		}
	})
	context.AfterFunc(ctx, cancel)
	return nil
}

// WaitForSync implements source.TypedSyncingSource.
func (p *podChangeSource) WaitForSync(ctx context.Context) error {
	err := p.reconciler.Pods.WaitForSync(ctx)
	p.synced.Store(err == nil)
	return err
}

// hasSameCharge reports whether a pod counts as before.
func hasSameCharge(before, after *podcache.Pod) bool {
	return before != nil && after != nil && before.Project == after.Project && before.Pool == after.Pool && before.Milli == after.Milli &&
		before.Queued == after.Queued && before.Admitted == after.Admitted && before.Deleting == after.Deleting &&
		(before.Node == "") == (after.Node == "")
}
