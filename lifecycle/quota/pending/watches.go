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

// eventSettleDelay is for how long news are gathered, in machine time: refusals and uses of
// a quota come in swarms.
const eventSettleDelay = time.Second

// EventCacheOptions limits the cache of events to those that are read here, and to what is
// read of them: a cluster has many.
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

// enqueueSettled enqueues what an object concerns, a little later.
func enqueueSettled(concerns func(context.Context, client.Object) []reconcile.Request) handler.EventHandler {
	add := func(ctx context.Context, object client.Object, q requestQueue) {
		for _, request := range concerns(ctx, object) {
			q.AddAfter(request, eventSettleDelay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requestQueue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requestQueue) { add(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requestQueue) { add(ctx, e.Object, q) },
	}
}

// rejectionEvents passes the events of pods that did not fit into a quota.
var rejectionEvents = predicate.NewPredicateFuncs(func(object client.Object) bool {
	event, ok := object.(*corev1.Event)
	if !ok {
		return false
	}
	_, ok = ParseQuotaRejection(event.Message)
	return ok
})

// quotaStatusChanged passes a quota when what it counts, or to what it holds people, changed.
var quotaStatusChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.ResourceQuota)
	after, ok2 := e.ObjectNew.(*corev1.ResourceQuota)
	return ok && ok2 && !equality.Semantic.DeepEqual(before.Status, after.Status)
}}

// requestsForNamespace is the project of an object's namespace.
func (r *Reconciler) requestsForNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByNamespace: object.GetNamespace()}); err != nil {
		log.FromContext(ctx).Error(err, "finding the project of a namespace", "namespace", object.GetNamespace())
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

// nodePoolsChanged passes a project that comes, goes, or has another list of node pools
// or another quota: what is used of them is to be told.
var nodePoolsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.Project)
	after, ok2 := e.ObjectNew.(*v1alpha1.Project)
	return ok && ok2 && !equality.Semantic.DeepEqual(guaranteedQuotas(before), guaranteedQuotas(after))
}}

// guaranteedQuotas is what a project's status says that it may have.
func guaranteedQuotas(project *v1alpha1.Project) []v1alpha1.PoolUsage {
	pools := []v1alpha1.PoolUsage{{GPUUsage: v1alpha1.GPUUsage{Guaranteed: project.Status.GPU.Guaranteed, Limit: project.Status.GPU.Limit}}}
	for _, use := range project.Status.NodePools {
		pools = append(pools, v1alpha1.PoolUsage{Name: use.Name, GPUUsage: v1alpha1.GPUUsage{Guaranteed: use.Guaranteed, Limit: use.Limit}})
	}
	return pools
}

// podChangeSource brings back a project when what its pods are charged, or where they
// wait, is another. It hears of pods for as long as this process has the turn.
type podChangeSource struct {
	reconciler *Reconciler
	// synced is set once all pods are known that were there before: these are nobody's
	// news.
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
		heard := false
		if p.synced.Load() {
			heard = p.reconciler.waitTimes.recordStart(c)
		}
		if heard || !hasSameCharge(c.Before, c.After) {
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

// hasSameCharge tells whether a pod counts as before.
func hasSameCharge(before, after *podcache.Pod) bool {
	return before != nil && after != nil && before.Project == after.Project && before.Pool == after.Pool && before.Milli == after.Milli &&
		before.Queued == after.Queued && before.Deleting == after.Deleting && (before.Node == "") == (after.Node == "")
}
