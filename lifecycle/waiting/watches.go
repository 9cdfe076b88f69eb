// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
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

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// settle is for how long news are gathered, in machine time: refusals and uses of
// a quota come in swarms.
const settle = time.Second

// Cached limits the cache of events to those that are read here, and to what is
// read of them: a cluster has many.
func Cached() (client.Object, cache.ByObject) {
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

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// soon enqueues what an object concerns, a little later.
func soon(concerns func(context.Context, client.Object) []reconcile.Request) handler.EventHandler {
	add := func(ctx context.Context, object client.Object, q queue) {
		for _, request := range concerns(ctx, object) {
			q.AddAfter(request, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
	}
}

// refusals passes the events of pods that did not fit into a quota.
var refusals = predicate.NewPredicateFuncs(func(object client.Object) bool {
	event, ok := object.(*corev1.Event)
	if !ok {
		return false
	}
	_, ok = ParseRefusal(event.Message)
	return ok
})

// counts passes a quota when what it counts, or to what it holds people, changed.
var counts = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.ResourceQuota)
	after, ok2 := e.ObjectNew.(*corev1.ResourceQuota)
	return ok && ok2 && !equality.Semantic.DeepEqual(before.Status, after.Status)
}}

// projectOf is the project of an object's namespace.
func (r *Reconciler) projectOf(ctx context.Context, object client.Object) []reconcile.Request {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByNamespace: object.GetNamespace()}); err != nil {
		log.FromContext(ctx).Error(err, "finding the project of a namespace", "namespace", object.GetNamespace())
		return nil
	}
	return inventory.Requests(&projects)
}

func projectOfQuota(_ context.Context, object client.Object) []reconcile.Request {
	if name := object.GetLabels()[v1alpha1.LabelProject]; name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	}
	return nil
}

func itself(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
}

// poolsChanged passes a project that comes, goes, or has another list of node pools
// or another quota: what is used of them is to be told.
var poolsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.Project)
	after, ok2 := e.ObjectNew.(*v1alpha1.Project)
	return ok && ok2 && !equality.Semantic.DeepEqual(promised(before), promised(after))
}}

// promised is what a project's status says that it may have.
func promised(project *v1alpha1.Project) []v1alpha1.PoolUse {
	pools := []v1alpha1.PoolUse{{GPUUse: v1alpha1.GPUUse{Guaranteed: project.Status.GPU.Guaranteed}}}
	for _, use := range project.Status.NodePools {
		pools = append(pools, v1alpha1.PoolUse{Name: use.Name, GPUUse: v1alpha1.GPUUse{Guaranteed: use.Guaranteed}})
	}
	return pools
}
