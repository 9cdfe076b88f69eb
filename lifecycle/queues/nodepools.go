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
	"sluice.dev/lifecycle/conflict"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/render"
	"sluice.dev/policies/facts"
)

// NodePools keeps what policies render for each NodePool.
type NodePools struct {
	Keeper
}

// SetupWithManager makes the manager run r, once policies are loaded and it is known
// which kinds of engines there are.
func (r *NodePools) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodepool-queues").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		For(&v1alpha1.NodePool{}, builder.WithPredicates(predicate.Or(declared, seen))).
		// The handler hears of the pools that a department had, and of those it has.
		Watches(&v1alpha1.Department{}, gathered(nodePoolsOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Project{}, gathered(nodePoolsOf), builder.WithPredicates(promised)).
		WatchesRawSource(r.Queues.Source(render.ForNodePool, r.all)).
		WatchesRawSource(render.OtherPolicies(r.Changes, r.all)).
		Complete(conflict.Retried(r))
}

// Reconcile implements reconcile.Reconciler for the node pool of the request's name.
func (r *NodePools) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	place := render.ClusterWide(render.ForNodePool, req.Name)
	var pool v1alpha1.NodePool
	if err := r.Client.Get(ctx, req.NamespacedName, &pool); err != nil {
		return reconcile.Result{}, r.gone(ctx, place, &pool, err)
	}
	if !pool.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.letGo(ctx, &pool, place)
	}
	var departments v1alpha1.DepartmentList
	if err := r.Client.List(ctx, &departments, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing departments: %w", err)
	}
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByNodePool: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the projects of node pool %s: %w", pool.Name, err)
	}
	return r.keep(ctx, &pool, render.OfNodePool(&pool, facts.OfNodePool(&pool, departments.Items, projects.Items)), &pool.Status.Conditions)
}

func nodePoolsOf(_ context.Context, object client.Object) []reconcile.Request {
	var quotas []v1alpha1.PoolQuota
	switch of := object.(type) {
	case *v1alpha1.Department:
		quotas = of.Spec.NodePools
	case *v1alpha1.Project:
		quotas = of.Spec.NodePools
	}
	requests := make([]reconcile.Request, 0, len(quotas))
	for i := range quotas {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: quotas[i].Name}})
	}
	return requests
}

func (r *NodePools) all(ctx context.Context) []reconcile.Request {
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		log.FromContext(ctx).Error(err, "listing node pools")
		return nil
	}
	return inventory.Requests(&pools)
}
