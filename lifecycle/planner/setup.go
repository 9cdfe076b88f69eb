// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
)

// thePlan is the one request that there is.
var thePlan = reconcile.Request{NamespacedName: client.ObjectKey{Name: "plan"}}

// SetupWithManager makes the manager run r, on the replica that has the turn.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.begin()
	var err error
	if r.pending, err = newPending(mgr.GetConfig(), mgr.GetLogger().WithName("planner")); err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("planner").
		Watches(&v1alpha1.NodePool{}, soon, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, soon, builder.WithPredicates(nodeChanged)).
		Watches(&v1alpha1.GPUNode{}, soon, builder.WithPredicates(gpusChanged)).
		WatchesRawSource(r.pending).
		Complete(conflict.Retried(r))
	if err != nil {
		return fmt.Errorf("planning MIG instances: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// soon asks for a decision about all, a little later: news come in swarms.
var soon = handler.Funcs{
	CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { q.AddAfter(thePlan, batch) },
	UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q queue) { q.AddAfter(thePlan, batch) },
	DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { q.AddAfter(thePlan, batch) },
}

// nodeChanged passes what can change who may be on a node, and what is there.
var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 ||
		!maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		before.Spec.Unschedulable != after.Spec.Unschedulable ||
		!equality.Semantic.DeepEqual(publishedBy(before), publishedBy(after))
}}

// gpusChanged passes what can change a plan, and keeps out the figures of use.
var gpusChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.GPUNode)
	after, ok2 := e.ObjectNew.(*v1alpha1.GPUNode)
	return !ok || !ok2 ||
		before.Generation != after.Generation ||
		before.Status.ObservedGeneration != after.Status.ObservedGeneration ||
		!equality.Semantic.DeepEqual(before.Status.GPUs, after.Status.GPUs) ||
		!equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions) ||
		!equality.Semantic.DeepEqual(devices(before), devices(after))
}}

// devices are who has which.
func devices(node *v1alpha1.GPUNode) map[string]int {
	of := map[string]int{}
	for i := range node.Status.Pods {
		for _, device := range node.Status.Pods[i].Devices {
			of[device]++
		}
	}
	return of
}
