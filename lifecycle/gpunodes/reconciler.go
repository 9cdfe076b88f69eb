// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpunodes

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Reconciler keeps each node's GPUNode there.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
}

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("gpunodes").
		For(&corev1.Node{}, builder.WithPredicates(inventory.NodeChanged)).
		Watches(&v1alpha1.NodePool{}, handler.EnqueueRequestsFromMapFunc(r.allNodes), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUNode{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(conflict.Retried(r))
}

// Reconcile implements reconcile.Reconciler for the node of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	present, err := inventory.Observed(ctx, r.Client, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	var node corev1.Node
	if err := r.Client.Get(ctx, req.NamespacedName, &node); apierrors.IsNotFound(err) {
		// Garbage collection would take it away, too, where it is at work.
		return reconcile.Result{}, r.remove(ctx, present)
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading node %s: %w", req.Name, err)
	}
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing node pools: %w", err)
	}
	want := Want(&node, pools.Items)
	switch {
	case want == nil && (len(inventory.PoolsOf(&node, pools.Items)) == 1 && node.DeletionTimestamp == nil && present != nil && of(present, &node)):
		// It had GPUs; that nobody says so at the moment, as after a restart, is no
		// reason to forget how they are cut.
		return reconcile.Result{}, nil
	case want == nil:
		return reconcile.Result{}, r.remove(ctx, present)
	case present == nil:
		if err := r.Client.Create(ctx, want, client.FieldOwner(v1alpha1.FieldManagerLifecycle)); err != nil {
			return reconcile.Result{}, fmt.Errorf("making GPUNode %s: %w", want.Name, err)
		}
		return reconcile.Result{}, nil
	case !ours(present):
		log.FromContext(ctx).Info("leaving alone a GPUNode that somebody else made", "gpunode", present.Name)
		return reconcile.Result{}, nil
	case !of(present, &node):
		// The next pass, which its going brings about, makes another.
		return reconcile.Result{}, r.remove(ctx, present)
	case present.Spec.NodePool != want.Spec.NodePool:
		return reconcile.Result{}, r.move(ctx, present, want.Spec.NodePool)
	}
	return reconcile.Result{}, nil
}

// remove takes away the very GPUNode that was looked at, if it was made here.
func (r *Reconciler) remove(ctx context.Context, present *v1alpha1.GPUNode) error {
	if present == nil || !ours(present) || present.DeletionTimestamp != nil {
		return nil
	}
	err := r.Client.Delete(ctx, present, client.Preconditions(metav1.Preconditions{UID: &present.UID}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking away GPUNode %s: %w", present.Name, err)
	}
	return nil
}

// move writes another pool, and nothing else.
func (r *Reconciler) move(ctx context.Context, present *v1alpha1.GPUNode, pool string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": present.UID, "resourceVersion": present.ResourceVersion},
		"spec":     map[string]any{"nodePool": pool},
	})
	if err != nil {
		return fmt.Errorf("GPUNode %s: %w", present.Name, err)
	}
	err = r.Client.Patch(ctx, present, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("moving GPUNode %s to node pool %s: %w", present.Name, pool, err)
	}
	return nil
}

func (r *Reconciler) allNodes(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing nodes for a changed pool")
		return nil
	}
	return inventory.Requests(&nodes)
}
