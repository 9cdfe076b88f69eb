// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpunodes makes a GPUNode for each node of a pool that has GPUs.
//
// Enters: Nodes and NodePools. Leaves: for each node of exactly one pool that has
// NVIDIA GPUs, or is labeled so, a GPUNode of its name that the Node owns and that
// names the pool. It goes when the node has no pool any more, or two; and with the
// Node, whose successor under the same name gets a new one.
//
// It never writes how GPUs are cut, never writes a status, and never takes away a
// GPUNode that somebody else made.
package gpunode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/conflict"
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
		Watches(&v1alpha1.NodePool{}, handler.EnqueueRequestsFromMapFunc(r.enqueueAllNodes), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUNode{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(conflict.WithRetry(r))
}

// Reconcile implements reconcile.Reconciler for the node of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	present, err := inventory.GetGPUNode(ctx, r.Client, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	var node corev1.Node
	if err := r.Client.Get(ctx, req.NamespacedName, &node); apierrors.IsNotFound(err) {
		// Garbage collection would take it away, too, where it is at work.
		return reconcile.Result{}, r.deleteGPUNode(ctx, present)
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading node %s: %w", req.Name, err)
	}
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing node pools: %w", err)
	}
	want := DesiredGPUNode(&node, pools.Items)
	switch {
	case want == nil && (len(inventory.PoolsForNode(&node, pools.Items)) == 1 && node.DeletionTimestamp == nil && present != nil && isOwnedBy(present, &node)):
		// It had GPUs; that nobody says so at the moment, as after a restart, is no
		// reason to forget how they are cut.
		return reconcile.Result{}, nil
	case want == nil:
		return reconcile.Result{}, r.deleteGPUNode(ctx, present)
	case present == nil:
		if err := r.Client.Create(ctx, want, client.FieldOwner(v1alpha1.FieldManagerLifecycle)); err != nil {
			return reconcile.Result{}, fmt.Errorf("making GPUNode %s: %w", want.Name, err)
		}
		return reconcile.Result{}, nil
	case !isManaged(present):
		log.FromContext(ctx).Info("leaving alone a GPUNode that somebody else made", "gpunode", present.Name)
		return reconcile.Result{}, nil
	case !isOwnedBy(present, &node):
		// The next pass, which its going brings about, makes another.
		return reconcile.Result{}, r.deleteGPUNode(ctx, present)
	case present.Spec.NodePool != want.Spec.NodePool:
		return reconcile.Result{}, r.patchNodePool(ctx, present, want.Spec.NodePool)
	}
	return reconcile.Result{}, nil
}

// deleteGPUNode takes away the very GPUNode that was looked at, if it was made here.
func (r *Reconciler) deleteGPUNode(ctx context.Context, present *v1alpha1.GPUNode) error {
	if present == nil || !isManaged(present) || present.DeletionTimestamp != nil {
		return nil
	}
	err := r.Client.Delete(ctx, present, client.Preconditions(metav1.Preconditions{UID: &present.UID}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking away GPUNode %s: %w", present.Name, err)
	}
	return nil
}

// patchNodePool writes another pool, and nothing else.
func (r *Reconciler) patchNodePool(ctx context.Context, present *v1alpha1.GPUNode, pool string) error {
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

func (r *Reconciler) enqueueAllNodes(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing nodes for a changed pool")
		return nil
	}
	return inventory.Requests(&nodes)
}

// labelGPUPresent is "true" on a node in which NVIDIA's operator found a GPU.
const labelGPUPresent = "nvidia.com/gpu.present"

// DesiredGPUNode is the GPUNode that the node should have; nil for none.
func DesiredGPUNode(node *corev1.Node, pools []v1alpha1.NodePool) *v1alpha1.GPUNode {
	names := inventory.PoolsForNode(node, pools)
	if len(names) != 1 || node.DeletionTimestamp != nil || !hasGPUs(node) {
		return nil
	}
	return &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{
			Name:   node.Name,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice},
			// It goes with the node, and keeps nobody from deleting it.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
				Controller: ptr.To(false), BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: v1alpha1.GPUNodeSpec{NodePool: names[0]},
	}
}

// hasGPUs tells whether a node has NVIDIA GPUs, or is said to: by NVIDIA's operator or
// GPU feature discovery, or by the device plugin, which may be there without either.
func hasGPUs(node *corev1.Node) bool {
	if node.Labels[labelGPUPresent] == "true" || node.Labels[v1alpha1.LabelMIGCapable] == "true" {
		return true
	}
	if count, err := strconv.Atoi(node.Labels[v1alpha1.LabelGPUCount]); err == nil && count > 0 {
		return true
	}
	for name, quantity := range node.Status.Capacity {
		if quantity.Sign() > 0 && (name == v1alpha1.ResourceNVIDIAGPU || name == v1alpha1.ResourceNVIDIAGPUShared ||
			strings.HasPrefix(string(name), v1alpha1.ResourceNVIDIAMIGPrefix)) {
			return true
		}
	}
	return false
}

// isManaged tells whether a GPUNode was made here: it says so, and a Node owns it.
func isManaged(object *v1alpha1.GPUNode) bool {
	return object.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice &&
		slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.Name == object.Name })
}

// isOwnedBy tells whether a GPUNode is that of the very node, and not of an earlier one.
func isOwnedBy(object *v1alpha1.GPUNode, node *corev1.Node) bool {
	return slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID == node.UID })
}
