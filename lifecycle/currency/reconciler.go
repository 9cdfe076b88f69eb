// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package currency

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
	"sluice.dev/lifecycle/inventory"
)

// Reconciler keeps the currency on every node right.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
}

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("currency").
		For(&corev1.Node{}, builder.WithPredicates(inventory.NodeChanged)).
		Watches(&v1alpha1.NodePool{}, handler.EnqueueRequestsFromMapFunc(r.allNodes), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUNode{}, &handler.EnqueueRequestForObject{}).
		Complete(conflict.Retried(r))
}

// Reconcile implements reconcile.Reconciler for the node of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var node corev1.Node
	if err := r.Client.Get(ctx, req.NamespacedName, &node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing node pools: %w", err)
	}
	observed, err := inventory.Observed(ctx, r.Client, node.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	want, err := Want(&node, observed, pools.Items)
	if err != nil {
		// The pool's status tells people. What the node had stays: running pods
		// are counted in it.
		log.FromContext(ctx).Info("keeping the currency as it is", "reason", err.Error())
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.write(ctx, &node, want)
}

func (r *Reconciler) write(ctx context.Context, node *corev1.Node, want corev1.ResourceList) error {
	status := map[string]any{}
	for field, have := range map[string]corev1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
		if patch := Patch(have, want); len(patch) > 0 {
			status[field] = patch
		}
	}
	if len(status) == 0 {
		return nil
	}
	raw, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("node %s: %w", node.Name, err)
	}
	err = r.Client.Status().Patch(ctx, node, client.RawPatch(types.MergePatchType, raw))
	if apierrors.IsNotFound(err) {
		return nil // the node has gone, and its currency with it
	}
	if err != nil {
		return fmt.Errorf("writing the currency of node %s: %w", node.Name, err)
	}
	log.FromContext(ctx).Info("wrote the currency", "resources", want)
	return nil
}

func (r *Reconciler) allNodes(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		log.FromContext(ctx).Error(err, "listing nodes for a changed pool")
		return nil
	}
	return inventory.Requests(&nodes)
}
