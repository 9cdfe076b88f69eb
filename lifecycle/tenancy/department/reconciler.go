// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package department writes the status of Departments.
//
// It reads Departments, Projects and NodePools. A status has the number of projects,
// the GPU quota with what the projects use of it and request beyond, and conditions
// for missing node pools, oversubscription and unsupported fields. The package writes
// nothing else.
package department

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/apply"
)

// Reconciler writes the status of every Department.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
}

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("department").
		For(&v1alpha1.Department{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// When a project moves, the handler receives the old and the new one.
		Watches(&v1alpha1.Project{}, handler.EnqueueRequestsFromMapFunc(departmentRequest),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Project{}, usageChangeHandler{}, builder.WithPredicates(usageChanged)).
		Watches(&v1alpha1.NodePool{}, handler.EnqueueRequestsFromMapFunc(r.allRequests),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler for the department of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, req.NamespacedName, &department); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByDepartment: department.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the projects of department %s: %w", department.Name, err)
	}
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return reconcile.Result{}, fmt.Errorf("list node pools: %w", err)
	}
	status := BuildStatus(&department, projects.Items, pools.Items, metav1.NewTime(policytime.MachineNow()))
	fields := statusFields(&department, &department.Status)
	if err := apply.Status(ctx, r.Client, fieldManager, fields, statusFields(&department, &status)); err != nil {
		return reconcile.Result{}, fmt.Errorf("write the status of department %s: %w", department.Name, err)
	}
	return reconcile.Result{}, nil
}

// usageChangeDelay is the time for which changes of usage are collected, in machine time: a
// department has many projects.
const usageChangeDelay = time.Second

// usageChanged passes a change of a project's usage.
var usageChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.Project)
		after, ok2 := e.ObjectNew.(*v1alpha1.Project)
		return ok && ok2 && (!equality.Semantic.DeepEqual(before.Status.GPU, after.Status.GPU) ||
			!equality.Semantic.DeepEqual(before.Status.NodePools, after.Status.NodePools))
	},
}

// usageChangeHandler enqueues the department of a project after usageChangeDelay.
type usageChangeHandler struct{ handler.Funcs }

// Update implements handler.EventHandler.
func (usageChangeHandler) Update(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for _, request := range departmentRequest(ctx, e.ObjectNew) {
		q.AddAfter(request, usageChangeDelay)
	}
}

func departmentRequest(_ context.Context, object client.Object) []reconcile.Request {
	project, ok := object.(*v1alpha1.Project)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: project.Spec.Department}}}
}

func (r *Reconciler) allRequests(ctx context.Context, _ client.Object) []reconcile.Request {
	var departments v1alpha1.DepartmentList
	if err := r.Client.List(ctx, &departments); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list departments")
		return nil
	}
	return inventory.Requests(&departments)
}
