// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/input"
)

// DepartmentReconciler applies what policies render for each Department.
type DepartmentReconciler struct {
	Manager
}

// SetupWithManager makes the manager run r once policies are loaded and the served queue
// kinds are known.
func (r *DepartmentReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("department-queues").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		For(&v1alpha1.Department{}, builder.WithPredicates(declarationChanged)).
		// When a project moves, the handler receives both departments.
		Watches(&v1alpha1.Project{}, delayedHandler(departmentRequest), builder.WithPredicates(projectQuotaChanged)).
		Watches(&v1alpha1.NodePool{}, delayedHandler(r.departmentsUsingNodePool), builder.WithPredicates(nodePoolInputChanged)).
		WatchesRawSource(r.Queues.Source(apply.SubjectDepartment, r.allRequests)).
		WatchesRawSource(apply.PolicyChangeSource(r.PolicyChanges, r.allRequests)).
		Complete(apply.RequeueOnConflict(r))
}

// Reconcile implements reconcile.Reconciler for the department of the request's name.
func (r *DepartmentReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	target := apply.ClusterTarget(apply.SubjectDepartment, req.Name)
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, req.NamespacedName, &department); err != nil {
		return reconcile.Result{}, r.removeOrphans(ctx, target, &department, err)
	}
	if !department.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.reconcileDelete(ctx, &department, target)
	}
	var projects v1alpha1.ProjectList
	// A department may have thousands of projects: the cached objects are read in place.
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByDepartment: department.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the projects of department %s: %w", department.Name, err)
	}
	pools, err := r.listNodePools(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	quotas := input.NewDepartmentPools(&department, projects.Items, func(name string) *v1alpha1.NodePool { return pools[name] })
	return r.reconcileObjects(ctx, &department, apply.DepartmentSubject(&department, quotas), department.Status.Conditions)
}

// listNodePools returns all node pools by name.
func (r *DepartmentReconciler) listNodePools(ctx context.Context) (map[string]*v1alpha1.NodePool, error) {
	var list v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list node pools: %w", err)
	}
	pools := make(map[string]*v1alpha1.NodePool, len(list.Items))
	for i := range list.Items {
		pools[list.Items[i].Name] = &list.Items[i]
	}
	return pools, nil
}

func departmentRequest(_ context.Context, object client.Object) []reconcile.Request {
	project, ok := object.(*v1alpha1.Project)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: project.Spec.Department}}}
}

// departmentsUsingNodePool returns requests for the departments that may use a node pool.
func (r *DepartmentReconciler) departmentsUsingNodePool(ctx context.Context, pool client.Object) []reconcile.Request {
	return r.requestsWhere(ctx, func(d *v1alpha1.Department) bool { return usesNodePool(d, pool.GetName()) })
}

func (r *DepartmentReconciler) allRequests(ctx context.Context) []reconcile.Request {
	return r.requestsWhere(ctx, func(*v1alpha1.Department) bool { return true })
}

func (r *DepartmentReconciler) requestsWhere(ctx context.Context, match func(*v1alpha1.Department) bool) []reconcile.Request {
	var departments v1alpha1.DepartmentList
	if err := r.Client.List(ctx, &departments, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list departments")
		return nil
	}
	var requests []reconcile.Request
	for i := range departments.Items {
		if match(&departments.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: departments.Items[i].Name}})
		}
	}
	return requests
}

func usesNodePool(department *v1alpha1.Department, pool string) bool {
	return slices.ContainsFunc(department.Spec.NodePools, func(quota v1alpha1.PoolQuota) bool { return quota.Name == pool })
}
