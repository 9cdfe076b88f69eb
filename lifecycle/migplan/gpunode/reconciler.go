// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpunode creates a GPUNode for each node with GPUs in a pool.
//
// It reads Nodes and NodePools. For each node that exactly one pool selects and that
// has NVIDIA GPUs, or is labeled so, it creates a GPUNode of the same name, owned by
// the Node, that names the pool. It deletes the GPUNode when no pool or two pools
// select the node, and replaces it when a new Node takes the name.
//
// It never writes a layout or a status, and never deletes a GPUNode that it did not
// create.
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
	"sluice.dev/lifecycle/rendering/apply"
)

// Reconciler creates, updates and deletes the GPUNode of each node.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
}

// SetupWithManager adds r to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("gpunodes").
		For(&corev1.Node{}, builder.WithPredicates(inventory.NodeChanged)).
		Watches(&v1alpha1.NodePool{}, handler.EnqueueRequestsFromMapFunc(r.enqueueAllNodes),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUNode{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(apply.RequeueOnConflict(r))
}

// Reconcile creates, updates or deletes the GPUNode of the requested node.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	present, err := inventory.GetGPUNode(ctx, r.Client, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	var node corev1.Node
	if err := r.Client.Get(ctx, req.NamespacedName, &node); apierrors.IsNotFound(err) {
		// Garbage collection would delete it too, where it runs.
		return reconcile.Result{}, r.deleteGPUNode(ctx, present)
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get node %s: %w", req.Name, err)
	}
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return reconcile.Result{}, fmt.Errorf("list node pools: %w", err)
	}
	desired := DesiredGPUNode(&node, pools.Items)
	switch {
	case desired == nil && len(inventory.PoolsForNode(&node, pools.Items)) == 1 && node.DeletionTimestamp == nil &&
		present != nil && isOwnedBy(present, &node):
		// The node had GPUs. After a restart its labels and capacity may lack them for a
		// while; the GPUNode keeps their layout.
		return reconcile.Result{}, nil
	case desired == nil:
		return reconcile.Result{}, r.deleteGPUNode(ctx, present)
	case present == nil:
		if err := r.Client.Create(ctx, desired, client.FieldOwner(v1alpha1.FieldManagerLifecycle)); err != nil {
			return reconcile.Result{}, fmt.Errorf("create GPUNode %s: %w", desired.Name, err)
		}
		return reconcile.Result{}, nil
	case !isManaged(present):
		log.FromContext(ctx).Info("Skipped GPUNode not created by Sluice", "gpunode", present.Name)
		return reconcile.Result{}, nil
	case !isOwnedBy(present, &node):
		// Its deletion triggers the pass that creates the new one.
		return reconcile.Result{}, r.deleteGPUNode(ctx, present)
	case present.Spec.NodePool != desired.Spec.NodePool:
		return reconcile.Result{}, r.patchNodePool(ctx, present, desired.Spec.NodePool)
	}
	return reconcile.Result{}, nil
}

// deleteGPUNode deletes a GPUNode that this package created, with a precondition on its UID.
func (r *Reconciler) deleteGPUNode(ctx context.Context, present *v1alpha1.GPUNode) error {
	if present == nil || !isManaged(present) || present.DeletionTimestamp != nil {
		return nil
	}
	err := r.Client.Delete(ctx, present, client.Preconditions(metav1.Preconditions{UID: &present.UID}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete GPUNode %s: %w", present.Name, err)
	}
	return nil
}

// patchNodePool changes the pool of a GPUNode.
func (r *Reconciler) patchNodePool(ctx context.Context, present *v1alpha1.GPUNode, pool string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": present.UID, "resourceVersion": present.ResourceVersion},
		"spec":     map[string]any{"nodePool": pool},
	})
	if err != nil {
		return fmt.Errorf("marshal patch for GPUNode %s: %w", present.Name, err)
	}
	err = r.Client.Patch(ctx, present, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("move GPUNode %s to node pool %s: %w", present.Name, pool, err)
	}
	return nil
}

func (r *Reconciler) enqueueAllNodes(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list nodes of changed pool")
		return nil
	}
	return inventory.Requests(&nodes)
}

// labelGPUPresent is "true" on nodes where NVIDIA's GPU operator found a GPU.
const labelGPUPresent = "nvidia.com/gpu.present"

// DesiredGPUNode returns the GPUNode that the node should have; nil for none.
func DesiredGPUNode(node *corev1.Node, pools []v1alpha1.NodePool) *v1alpha1.GPUNode {
	names := inventory.PoolsForNode(node, pools)
	if len(names) != 1 || node.DeletionTimestamp != nil || !hasGPUs(node) {
		return nil
	}
	return &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{
			Name:   node.Name,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice},
			// The GPUNode is deleted with the node and does not block its deletion.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
				Controller: ptr.To(false), BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: v1alpha1.GPUNodeSpec{NodePool: names[0]},
	}
}

// hasGPUs reports whether a node has NVIDIA GPUs by the labels of NVIDIA's GPU operator or GPU
// feature discovery, or by the device plugin's resources; each may run without the others.
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

// isManaged reports whether this package created the GPUNode: by its label and its owner.
func isManaged(object *v1alpha1.GPUNode) bool {
	return object.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice &&
		slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.Name == object.Name })
}

// isOwnedBy reports whether the GPUNode belongs to this Node, not to an earlier one of its name.
func isOwnedBy(object *v1alpha1.GPUNode, node *corev1.Node) bool {
	return slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID == node.UID })
}
