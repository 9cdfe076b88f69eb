// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/clocks"
	"sluice.dev/lifecycle/conflict"
)

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("extension").
		// One at a time: of two that are counted at once, both might be the last.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		For(&v1alpha1.Extension{}).
		Watches(&v1alpha1.WorkloadClock{}, handler.EnqueueRequestsFromMapFunc(r.ofClock), builder.WithPredicates(gone)).
		Complete(conflict.Retried(r))
}

// gone lets through the clocks of workloads that are not there any more.
var gone = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isClock := e.ObjectOld.(*v1alpha1.WorkloadClock)
		after, isStill := e.ObjectNew.(*v1alpha1.WorkloadClock)
		return isClock && isStill && before.Status.GoneSince == nil && after.Status.GoneSince != nil
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// ofClock are the Extensions for its workload of which something is still to come.
func (r *Reconciler) ofClock(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	clock, ok := object.(*v1alpha1.WorkloadClock)
	if !ok {
		return nil
	}
	var all v1alpha1.ExtensionList
	if err := r.Client.List(ctx, &all, client.InNamespace(clock.Namespace)); err != nil {
		log.FromContext(ctx).Error(err, "listing extensions", "namespace", clock.Namespace)
		return nil
	}
	for i := range all.Items {
		if e := &all.Items[i]; clocks.Extends(e, clock) && !told(e) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e)})
		}
	}
	return requests
}
