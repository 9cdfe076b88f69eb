// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
	"sluice.dev/lifecycle/inventory"
)

// Reconciler keeps the status of every NodePool right.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
}

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// Whether a node belongs to a pool depends on all pools, so any change of
	// a node or a pool may change every pool's status.
	everyPool := handler.EnqueueRequestsFromMapFunc(r.allPools)
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodepool").
		Watches(&v1alpha1.NodePool{}, everyPool, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, everyPool, builder.WithPredicates(inventory.NodeChanged)).
		Watches(&v1alpha1.GPUNode{}, everyPool).
		Complete(conflict.Retried(r))
}

// Reconcile implements reconcile.Reconciler for the pool of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pool v1alpha1.NodePool
	if err := r.Client.Get(ctx, req.NamespacedName, &pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	seen, err := r.observe(ctx, &pool)
	if err != nil {
		return reconcile.Result{}, err
	}
	status := Status(&pool, seen, metav1.NewTime(clock.MachineNow()))
	if equality.Semantic.DeepEqual(status, pool.Status) {
		return reconcile.Result{}, nil
	}
	pool.Status = status
	// An update with the resource version that was read: should the pool have
	// changed meanwhile, the next event brings it here again.
	if err := r.Client.Status().Update(ctx, &pool); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("writing the status of node pool %s: %w", pool.Name, err)
	}
	return reconcile.Result{}, nil
}

func (r *Reconciler) observe(ctx context.Context, pool *v1alpha1.NodePool) (Observation, error) {
	var pools v1alpha1.NodePoolList
	var nodes corev1.NodeList
	var gpuNodes v1alpha1.GPUNodeList
	for what, into := range map[string]client.ObjectList{"node pools": &pools, "nodes": &nodes, "GPU nodes": &gpuNodes} {
		// The cache's own objects, since thousands of nodes change in turn; they are only read.
		if err := r.Client.List(ctx, into, client.UnsafeDisableDeepCopy); err != nil {
			return Observation{}, fmt.Errorf("listing %s: %w", what, err)
		}
	}
	byNode := make(map[string]*v1alpha1.GPUNode, len(gpuNodes.Items))
	for i := range gpuNodes.Items {
		byNode[gpuNodes.Items[i].Name] = &gpuNodes.Items[i]
	}
	return Observe(pool, pools.Items, nodes.Items, byNode), nil
}

func (r *Reconciler) allPools(ctx context.Context, _ client.Object) []reconcile.Request {
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		log.FromContext(ctx).Error(err, "listing node pools")
		return nil
	}
	return inventory.Requests(&pools)
}
