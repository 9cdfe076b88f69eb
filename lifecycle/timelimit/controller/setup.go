// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/conflict"
)

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	changed := builder.WithPredicates(afterInitialList, predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("clock").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		For(&v1alpha1.WorkloadClock{}, builder.WithPredicates(predicate.Funcs{})).
		WatchesRawSource(r.Workloads.ClockSource()).
		WatchesRawSource(r.timelineSource()).
		Watches(&v1alpha1.Project{}, handler.EnqueueRequestsFromMapFunc(r.mapProjectToClocks), builder.WithPredicates(afterInitialList, specOrNamespaceChanged)).
		Watches(&v1alpha1.Department{}, handler.EnqueueRequestsFromMapFunc(r.mapDepartmentToClocks), changed).
		Watches(&v1alpha1.GPUNode{}, handler.EnqueueRequestsFromMapFunc(r.mapNodeToClocks)).
		Watches(&v1alpha1.Extension{}, handler.EnqueueRequestsFromMapFunc(r.mapExtensionToClock)).
		Complete(conflict.WithRetry(r))
}

// afterInitialList passes what happens after the start: all clocks are looked at then in any
// case, once.
var afterInitialList = predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}

// specOrNamespaceChanged passes other limits, and that a project has its namespace: what
// ran there before has no clock yet.
var specOrNamespaceChanged = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.Project)
		after, ok2 := e.ObjectNew.(*v1alpha1.Project)
		return !ok || !ok2 || !equality.Semantic.DeepEqual(before.Status.Namespace, after.Status.Namespace)
	},
})

// mapProjectToClocks are the clocks in the project's namespace.
func (r *Reconciler) mapProjectToClocks(ctx context.Context, object client.Object) []reconcile.Request {
	project, ok := object.(*v1alpha1.Project)
	if !ok {
		return nil
	}
	return r.clockRequestsInNamespace(ctx, project.NamespaceName())
}

// mapDepartmentToClocks are the clocks of all its projects.
func (r *Reconciler) mapDepartmentToClocks(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByDepartment: object.GetName()}); err != nil {
		log.FromContext(ctx).Error(err, "listing projects", "department", object.GetName())
		return nil
	}
	for i := range projects.Items {
		requests = append(requests, r.clockRequestsInNamespace(ctx, projects.Items[i].NamespaceName())...)
	}
	return requests
}

// clockRequestsInNamespace are the clocks that a namespace has, and those that its workloads
// should have.
func (r *Reconciler) clockRequestsInNamespace(ctx context.Context, namespace string) []reconcile.Request {
	requests := r.Workloads.clocksInNamespace(namespace)
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "listing clocks", "namespace", namespace)
		return nil
	}
	for i := range clocks.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&clocks.Items[i])})
	}
	return requests
}

// mapNodeToClocks are the clocks of the workloads that run on the node.
func (r *Reconciler) mapNodeToClocks(_ context.Context, object client.Object) (requests []reconcile.Request) {
	seen := map[types.NamespacedName]bool{}
	for pod := range r.Workloads.store.OnNode(object.GetName()) {
		if clock, known := r.Workloads.ClockOf(pod); known && !seen[clock] {
			seen[clock] = true
			requests = append(requests, reconcile.Request{NamespacedName: clock})
		}
	}
	return requests
}

// mapExtensionToClock is the clock of the workload for which more time is asked.
func (r *Reconciler) mapExtensionToClock(_ context.Context, object client.Object) []reconcile.Request {
	e, ok := object.(*v1alpha1.Extension)
	if !ok || e.Spec.Action != v1alpha1.ActionExtend {
		return nil
	}
	target := e.Spec.Target
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: e.Namespace, Name: v1alpha1.WorkloadClockName(apiGroupOf(target.APIVersion), target.Kind, target.Name),
	}}}
}
