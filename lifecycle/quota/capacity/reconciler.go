// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity sets the GPU quota unit on each node: thousandths of a GPU, in which
// quotas count whole GPUs, MIG instances and fractions alike.
//
// It reads Nodes, their GPUNodes and the NodePools. It writes the extended resources
// sluice.dev/gpu-milli and sluice.dev/guaranteed-milli to each node's capacity and
// allocatable, or with .<pool> appended if the pool's scheduler does not distinguish node
// pools; with Kueue only the second has it. Pods that cannot be preempted are charged both. It writes them again whenever one
// is missing or zero, for example after a node restart.
//
// It never changes other resources, and keeps the last value while the number of GPUs
// is unknown.
package capacity

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
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
	"sluice.dev/policies/input"
)

// Reconciler sets the GPU quota unit on every node.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
}

// SetupWithManager adds r to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("capacity").
		For(&corev1.Node{}, builder.WithPredicates(inventory.NodeChanged)).
		Watches(&v1alpha1.NodePool{}, handler.EnqueueRequestsFromMapFunc(r.allRequests),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUNode{}, &handler.EnqueueRequestForObject{}).
		Complete(apply.RequeueOnConflict(r))
}

// Reconcile implements reconcile.Reconciler for the node with the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var node corev1.Node
	if err := r.Client.Get(ctx, req.NamespacedName, &node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return reconcile.Result{}, fmt.Errorf("list node pools: %w", err)
	}
	observed, err := inventory.GetGPUNode(ctx, r.Client, node.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	want, err := Desired(&node, observed, pools.Items)
	if err != nil {
		// The pool's status reports the error. The node keeps its capacity, because
		// running pods use it.
		log.FromContext(ctx).Info("Kept GPU capacity of node", "reason", err.Error())
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.patchCapacity(ctx, &node, want)
}

func (r *Reconciler) patchCapacity(ctx context.Context, node *corev1.Node, want corev1.ResourceList) error {
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
		return nil // the node was deleted
	}
	if err != nil {
		return fmt.Errorf("update GPU capacity of node %s: %w", node.Name, err)
	}
	log.FromContext(ctx).Info("Updated GPU capacity of node", "resources", want)
	return nil
}

func (r *Reconciler) allRequests(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list nodes for a changed node pool")
		return nil
	}
	return inventory.Requests(&nodes)
}

// MilliPerGPU is the capacity of one physical GPU.
const MilliPerGPU = 1000

// Desired returns the GPU quota resources that the node must have. It returns none if no pool or
// several pools select the node, and an error if the number of its GPUs is unknown.
func Desired(node *corev1.Node, observed *v1alpha1.GPUNode, pools []v1alpha1.NodePool) (corev1.ResourceList, error) {
	names := inventory.PoolsForNode(node, pools)
	if len(names) != 1 {
		return nil, nil
	}
	summary, err := inventory.SummarizeNode(node, observed, pools...)
	if err != nil {
		return nil, err
	}
	for i := range pools {
		if pools[i].Name == names[0] && summary.GPUs > 0 {
			unit, capacity := input.QuotaResource(&pools[i]), *resource.NewQuantity(int64(summary.GPUs)*MilliPerGPU, resource.DecimalSI)
			return corev1.ResourceList{unit: capacity, input.GuaranteedResource(&pools[i]): capacity}, nil
		}
	}
	return nil, nil
}

// Patch returns the change from have to want: a value for each resource to set and nil for each
// to remove. It is empty if nothing changes. Resources other than Sluice's are ignored.
func Patch(have, want corev1.ResourceList) map[corev1.ResourceName]any {
	patch := map[corev1.ResourceName]any{}
	for name := range have {
		if _, wanted := want[name]; !wanted && v1alpha1.IsGPUCharge(name) {
			patch[name] = nil
		}
	}
	for name, quantity := range want {
		if present, ok := have[name]; !ok || present.Cmp(quantity) != 0 {
			patch[name] = quantity.String()
		}
	}
	return patch
}
