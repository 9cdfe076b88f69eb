// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render/queuekinds"
	"sluice.dev/policies/facts"
)

// workers are how many subjects of a kind are worked on at a time.
const workers = 4

// gather is for how long changes of others are gathered, in machine time: a
// department hears of a thousand projects that are made at once, and sums up what
// all of them are promised.
const gather = 200 * time.Millisecond

// declared passes what people changed of a subject, and its deletion. Policies read
// labels and annotations too.
var declared = predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
	predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	},
)

// promised passes a project that comes, goes, moves, or is guaranteed something else.
var promised = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.Project)
	after, ok2 := e.ObjectNew.(*v1alpha1.Project)
	return !ok || !ok2 || before.Spec.Department != after.Spec.Department ||
		!equality.Semantic.DeepEqual(before.Spec.NodePools, after.Spec.NodePools)
}}

// seen passes what changes of a node pool in the eyes of policies.
var seen = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.NodePool)
	after, ok2 := e.ObjectNew.(*v1alpha1.NodePool)
	return !ok || !ok2 || !equality.Semantic.DeepEqual(facts.OfNodePool(before, nil, nil), facts.OfNodePool(after, nil, nil))
}}

// gathered brings back those that a change concerns, of what was and of what is, a
// little later.
func gathered(whose handler.MapFunc) handler.EventHandler {
	tell := func(ctx context.Context, q queuekinds.Queue, objects ...client.Object) {
		for _, object := range objects {
			for _, request := range whose(ctx, object) {
				queuekinds.Later(q, request.Name, gather)
			}
		}
	}
	return handler.TypedFuncs[client.Object, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queuekinds.Queue) { tell(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queuekinds.Queue) {
			tell(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queuekinds.Queue) { tell(ctx, q, e.Object) },
	}
}
