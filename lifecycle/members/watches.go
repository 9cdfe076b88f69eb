// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

func (r *ProjectReconciler) projectsOfNamespace() handler.EventHandler {
	return r.projectsBy(inventory.ProjectsByNamespace)
}

func (r *ProjectReconciler) projectsOfDepartment() handler.EventHandler {
	return r.projectsBy(inventory.ProjectsByDepartment)
}

func (r *ProjectReconciler) projectsBy(index string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		var projects v1alpha1.ProjectList
		if err := r.Client.List(ctx, &projects, client.MatchingFields{index: object.GetName()}); err != nil {
			log.FromContext(ctx).Error(err, "listing projects", "index", index)
			return nil
		}
		return inventory.Requests(&projects)
	})
}

// named brings back the project or department for which something is bound, to put
// right what somebody changed; the handler sees an object before and after.
func named(label string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		name := object.GetLabels()[label]
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	})
}

// comesGoesOrSpec passes what may have other members.
var comesGoesOrSpec = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, going)

// going passes the beginning of a deletion.
var going = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
}}

// specOrNamespace passes what may have other members, or have its namespace now.
var specOrNamespace = predicate.Or[client.Object](comesGoesOrSpec, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.Project)
	after, ok2 := e.ObjectNew.(*v1alpha1.Project)
	return !ok || !ok2 || !equality.Semantic.DeepEqual(before.Status.Namespace, after.Status.Namespace)
}})

// governance passes a namespace that may be governed now, or no more.
var governance = predicate.Or[client.Object](going, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
}})
