// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

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

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
	"sluice.dev/lifecycle/inventory"
)

// Reconciler keeps the status of every Department right.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
}

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("department").
		For(&v1alpha1.Department{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// On a move the handler sees both the old and the new project.
		Watches(&v1alpha1.Project{}, handler.EnqueueRequestsFromMapFunc(departmentOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Project{}, settledUse{}, builder.WithPredicates(useChanged)).
		Watches(&v1alpha1.NodePool{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(conflict.Retried(r))
}

// Reconcile implements reconcile.Reconciler for the department of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, req.NamespacedName, &department); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByDepartment: department.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the projects of department %s: %w", department.Name, err)
	}
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing node pools: %w", err)
	}
	status := Status(&department, projects.Items, pools.Items, metav1.NewTime(clock.MachineNow()))
	if equality.Semantic.DeepEqual(status, department.Status) {
		return reconcile.Result{}, nil
	}
	department.Status = status
	if err := r.Client.Status().Update(ctx, &department); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("writing the status of department %s: %w", department.Name, err)
	}
	return reconcile.Result{}, nil
}

// settle is for how long changes of the use are gathered, in machine time: each
// of a department's projects has its own.
const settle = time.Second

// useChanged passes a project whose use of GPUs is another.
var useChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.Project)
		after, ok2 := e.ObjectNew.(*v1alpha1.Project)
		return ok && ok2 && (!equality.Semantic.DeepEqual(before.Status.GPU, after.Status.GPU) ||
			!equality.Semantic.DeepEqual(before.Status.NodePools, after.Status.NodePools))
	},
}

// settledUse brings back the department of a project, a little later.
type settledUse struct{ handler.Funcs }

// Update implements handler.EventHandler.
func (settledUse) Update(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for _, request := range departmentOf(ctx, e.ObjectNew) {
		q.AddAfter(request, settle)
	}
}

func departmentOf(_ context.Context, object client.Object) []reconcile.Request {
	project, ok := object.(*v1alpha1.Project)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: project.Spec.Department}}}
}

func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var departments v1alpha1.DepartmentList
	if err := r.Client.List(ctx, &departments); err != nil {
		log.FromContext(ctx).Error(err, "listing departments")
		return nil
	}
	return inventory.Requests(&departments)
}
