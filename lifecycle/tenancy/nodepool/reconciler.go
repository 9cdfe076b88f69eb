// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodepool writes the status of NodePools.
//
// It reads NodePools, Nodes and GPUNodes, the policies in force, and what these require
// of the cluster, and the pods of nodes that offer what no list knows. A status has the pool's nodes, GPUs and GPU models, the settings of
// its scheduler that policies read, and conditions that name each problem with its
// remedy. The package writes nothing else.
package nodepool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/rendering/requirements"
	"sluice.dev/policies/engine"
)

// Reconciler writes the status of every NodePool.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads the objects that policies require; no cache has them.
	Live client.Reader
	// Policies are those in force.
	Policies *engine.Engine
	// PolicyChanges reports when other policies are in force.
	PolicyChanges apply.PolicyChanges

	// checker has read the cluster at checkerCreated, in machine time.
	checker        *requirements.Checker
	checkerCreated time.Time
}

// The time until a pool is reconciled again, in machine time: no event announces the
// installation or configuration of a scheduler.
const (
	requirementsRequeue = time.Minute
	// missingRequirementRequeue is for a missing requirement, which an administrator may
	// be installing.
	missingRequirementRequeue = 10 * time.Second
)

// SetupWithManager makes the manager run r, once policies are loaded.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// The pool of a node depends on all pools, so a change of a node or a pool may change
	// every pool's status.
	everyPool := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return r.allRequests(ctx)
	})
	// Policies read labels and annotations too.
	declared := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{},
		predicate.AnnotationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodepool").
		Watches(&v1alpha1.NodePool{}, everyPool, builder.WithPredicates(declared)).
		Watches(&corev1.Node{}, everyPool, builder.WithPredicates(predicate.Or[client.Object](inventory.NodeChanged, taintsChanged))).
		Watches(&v1alpha1.AdmissionParameters{}, everyPool, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GPUNode{}, handler.EnqueueRequestsFromMapFunc(r.mapGPUNodeToPools)).
		WatchesRawSource(apply.PolicyChangeSource(r.PolicyChanges, r.allRequests)).
		Complete(r)
}

// taintsChanged selects updates of a node's lasting taints.
var taintsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 || !slices.Equal(lastingTaints(before), lastingTaints(after))
}}

// Reconcile implements reconcile.Reconciler for the pool of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pool v1alpha1.NodePool
	if err := r.Client.Get(ctx, req.NamespacedName, &pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := policytime.MachineNow()
	observation, err := r.observe(ctx, &pool, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	support, err := r.observeScheduler(ctx, &pool)
	if err != nil {
		return reconcile.Result{}, err
	}
	status := BuildStatus(&pool, observation, support, metav1.NewTime(now))
	if err := apply.Status(ctx, r.Client, fieldManager, statusFields(&pool, &pool.Status), statusFields(&pool, &status)); err != nil {
		return reconcile.Result{}, fmt.Errorf("write the status of node pool %s: %w", pool.Name, err)
	}
	result := support.requeue()
	if len(status.UnlistedResources) > 0 && result.RequeueAfter == 0 {
		result.RequeueAfter = unlistedRequeue
	}
	return result, support.CheckErr
}

// requeue returns when the pool is reconciled again.
func (s SchedulerSupport) requeue() reconcile.Result {
	switch {
	case s.CheckErr != nil:
		return reconcile.Result{} // the error is retried
	case len(s.Findings.Missing) > 0, len(s.Failures) > 0:
		return reconcile.Result{RequeueAfter: missingRequirementRequeue}
	case s.RequirementCount > 0:
		return reconcile.Result{RequeueAfter: requirementsRequeue}
	}
	return reconcile.Result{}
}

func (r *Reconciler) observe(ctx context.Context, pool *v1alpha1.NodePool, now time.Time) (Observation, error) {
	var pools v1alpha1.NodePoolList
	var nodes corev1.NodeList
	var gpuNodes v1alpha1.GPUNodeList
	for name, into := range map[string]client.ObjectList{"node pools": &pools, "nodes": &nodes, "GPU nodes": &gpuNodes} {
		// Thousands of nodes change one after the other: the cached objects are read in place.
		if err := r.Client.List(ctx, into, client.UnsafeDisableDeepCopy); err != nil {
			return Observation{}, fmt.Errorf("list %s: %w", name, err)
		}
	}
	byNode := make(map[string]*v1alpha1.GPUNode, len(gpuNodes.Items))
	for i := range gpuNodes.Items {
		byNode[gpuNodes.Items[i].Name] = &gpuNodes.Items[i]
	}
	observation := Observe(pool, pools.Items, nodes.Items, byNode)
	return observation, r.observeUnlisted(ctx, pool, pools.Items, nodes.Items, now, &observation)
}

// mapGPUNodeToPools returns the pools that select the node. The agent writes a GPUNode often, and
// it changes no other pool. Without a Node no pool reads the GPUNode.
func (r *Reconciler) mapGPUNodeToPools(ctx context.Context, object client.Object) []reconcile.Request {
	var node corev1.Node
	var pools v1alpha1.NodePoolList
	err := r.Client.Get(ctx, client.ObjectKey{Name: object.GetName()}, &node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err = cmp.Or(err, r.Client.List(ctx, &pools)); err != nil {
		log.FromContext(ctx).Error(err, "Failed to find the node pools of a GPUNode", "node", object.GetName())
		return nil
	}
	var requests []reconcile.Request
	for _, name := range inventory.PoolsForNode(&node, pools.Items) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	return requests
}

func (r *Reconciler) allRequests(ctx context.Context) []reconcile.Request {
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list node pools")
		return nil
	}
	return inventory.Requests(&pools)
}
