// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/input"
)

// NodePoolReconciler applies what policies render for each NodePool.
type NodePoolReconciler struct {
	Manager
}

// SetupWithManager makes the manager run r once policies are loaded and the served queue
// kinds are known.
func (r *NodePoolReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodepool-queues").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		For(&v1alpha1.NodePool{}, builder.WithPredicates(predicate.Or(declarationChanged, nodePoolInputChanged))).
		// The handler receives the pools that a department had and those that it has.
		Watches(&v1alpha1.Department{}, delayedHandler(nodePoolRequests), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Project{}, delayedHandler(nodePoolRequests), builder.WithPredicates(projectQuotaChanged)).
		WatchesRawSource(r.Queues.Source(apply.SubjectNodePool, r.allRequests)).
		WatchesRawSource(apply.PolicyChangeSource(r.PolicyChanges, r.allRequests)).
		Complete(apply.RequeueOnConflict(r))
}

// Reconcile implements reconcile.Reconciler for the node pool of the request's name.
func (r *NodePoolReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	target := apply.ClusterTarget(apply.SubjectNodePool, req.Name)
	var pool v1alpha1.NodePool
	if err := r.Client.Get(ctx, req.NamespacedName, &pool); err != nil {
		return reconcile.Result{}, r.removeOrphans(ctx, target, &pool, err)
	}
	if !pool.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.reconcileDelete(ctx, &pool, target)
	}
	var departments v1alpha1.DepartmentList
	if err := r.Client.List(ctx, &departments, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list departments: %w", err)
	}
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByNodePool: pool.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the projects of node pool %s: %w", pool.Name, err)
	}
	return r.reconcileObjects(ctx, &pool, apply.NodePoolSubject(&pool, input.NewNodePool(&pool, departments.Items, projects.Items)),
		pool.Status.Conditions)
}

func nodePoolRequests(_ context.Context, object client.Object) []reconcile.Request {
	var quotas []v1alpha1.PoolQuota
	switch object := object.(type) {
	case *v1alpha1.Department:
		quotas = object.Spec.NodePools
	case *v1alpha1.Project:
		quotas = object.Spec.NodePools
	}
	requests := make([]reconcile.Request, 0, len(quotas))
	for i := range quotas {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: quotas[i].Name}})
	}
	return requests
}

func (r *NodePoolReconciler) allRequests(ctx context.Context) []reconcile.Request {
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list node pools")
		return nil
	}
	return inventory.Requests(&pools)
}
