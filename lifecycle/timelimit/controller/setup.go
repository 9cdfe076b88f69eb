// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/apply"
)

// maxConcurrentReconciles is the number of workers of each of the two controllers. They
// mostly wait for the API server.
const maxConcurrentReconciles = 16

// SetupWithManager adds the controller and its retention task to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	changed := builder.WithPredicates(afterInitialList, predicate.GenerationChangedPredicate{})
	projectChanged := builder.WithPredicates(afterInitialList, specOrNamespaceChanged)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("clock").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles, NewQueue: r.newQueue}).
		For(&v1alpha1.WorkloadClock{}, builder.WithPredicates(predicate.Funcs{})).
		WatchesRawSource(r.Workloads.ClockSource()).
		WatchesRawSource(r.timelineSource()).
		Watches(&v1alpha1.Project{}, handler.EnqueueRequestsFromMapFunc(r.mapProjectToClocks), projectChanged).
		Watches(&v1alpha1.Department{}, handler.EnqueueRequestsFromMapFunc(r.mapDepartmentToClocks), changed).
		Watches(&v1alpha1.AdmissionParameters{}, handler.EnqueueRequestsFromMapFunc(r.mapPauseToClocks), inventory.PauseChanged).
		Watches(&v1alpha1.GPUNode{}, handler.EnqueueRequestsFromMapFunc(r.mapNodeToClocks)).
		Watches(&v1alpha1.Extension{}, handler.EnqueueRequestsFromMapFunc(r.mapExtensionToClock)).
		Complete(apply.RequeueOnConflict(r))
	if err != nil {
		return fmt.Errorf("build controller clock: %w", err)
	}
	return mgr.Add(r)
}

// afterInitialList ignores the objects of the initial list. At the start every clock is
// reconciled once in any case.
var afterInitialList = predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}

// specOrNamespaceChanged passes changed limits, the suspension, renewal or deletion of a project, and a
// project that got its namespace: the workloads that already ran there have no clock yet.
var specOrNamespaceChanged = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.Project)
		after, ok2 := e.ObjectNew.(*v1alpha1.Project)
		return !ok || !ok2 || before.StopsWorkloads() != after.StopsWorkloads() ||
			!equality.Semantic.DeepEqual(before.Status.Namespace, after.Status.Namespace)
	},
})

// mapProjectToClocks returns the clocks in the project's namespace.
func (r *Reconciler) mapProjectToClocks(ctx context.Context, object client.Object) []reconcile.Request {
	project, ok := object.(*v1alpha1.Project)
	if !ok {
		return nil
	}
	return r.clockRequestsInNamespace(ctx, project.NamespaceName())
}

// mapDepartmentToClocks returns the clocks of all projects of the department.
func (r *Reconciler) mapDepartmentToClocks(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByDepartment: object.GetName()}); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list projects", "department", object.GetName())
		return nil
	}
	for i := range projects.Items {
		requests = append(requests, r.clockRequestsInNamespace(ctx, projects.Items[i].NamespaceName())...)
	}
	return requests
}

// mapPauseToClocks returns all clocks: a pause changes their deadlines.
func (r *Reconciler) mapPauseToClocks(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.existingClocks(ctx)
}

// clockRequestsInNamespace returns the clocks that exist in a namespace and those that its
// workloads should have.
func (r *Reconciler) clockRequestsInNamespace(ctx context.Context, namespace string) []reconcile.Request {
	return append(r.Workloads.clocksInNamespace(namespace), r.existingClocks(ctx, client.InNamespace(namespace))...)
}

func (r *Reconciler) existingClocks(ctx context.Context, options ...client.ListOption) (requests []reconcile.Request) {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks, options...); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list clocks")
		return nil
	}
	for i := range clocks.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&clocks.Items[i])})
	}
	return requests
}

// mapNodeToClocks returns the clocks of the workloads that run on the node.
func (r *Reconciler) mapNodeToClocks(_ context.Context, object client.Object) []reconcile.Request {
	requests := sets.New[reconcile.Request]()
	for pod := range r.Workloads.store.OnNode(object.GetName()) {
		if clock, known := r.Workloads.ClockOf(pod); known {
			requests.Insert(reconcile.Request{NamespacedName: clock})
		}
	}
	return requests.UnsortedList()
}

// mapExtensionToClock returns the clock that an extension targets.
func (r *Reconciler) mapExtensionToClock(_ context.Context, object client.Object) []reconcile.Request {
	e, ok := object.(*v1alpha1.Extension)
	if !ok || e.Spec.Action != v1alpha1.ActionExtend {
		return nil
	}
	return []reconcile.Request{{NamespacedName: TargetClock(e)}}
}

// timelineSource enqueues every clock when policy time steps or changes its pace, because a
// deadline can be due earlier then.
func (r *Reconciler) timelineSource() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		policytime.NotifySteps(ctx, r.Clock, func() {
			for _, request := range r.existingClocks(ctx) {
				queue.Add(request)
			}
		})
		return nil
	})
}
