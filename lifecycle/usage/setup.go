// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
	"sluice.dev/lifecycle/gpupods"
)

// workers is how many namespaces are looked at at a time.
const workers = 2

// SetupWithManager makes the manager run r on the changes of pods.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pods *gpupods.Store) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("usage").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		WatchesRawSource(gpupods.Source(pods, r.meter.changed)).
		Watches(&v1alpha1.Project{}, handler.EnqueueRequestsFromMapFunc(ofProject), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		Complete(conflict.Retried(r))
}

// ofProject is the project's namespace.
func ofProject(_ context.Context, object client.Object) []reconcile.Request {
	project, ok := object.(*v1alpha1.Project)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: project.NamespaceName()}}}
}
