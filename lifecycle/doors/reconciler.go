// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
)

// Reconciler keeps the doors shut: whatever is changed or taken away comes back.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Settings are the platform team's.
	Settings Settings
}

// theDoors is the one request that there is: they are applied together.
var theDoors = reconcile.Request{NamespacedName: client.ObjectKey{Name: "doors"}}

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	toAll := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{theDoors}
	})
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice
	}))
	return ctrl.NewControllerManagedBy(mgr).
		Named("doors").
		Watches(&admissionv1.ValidatingAdmissionPolicy{}, toAll, ours).
		Watches(&admissionv1.ValidatingAdmissionPolicyBinding{}, toAll, ours).
		// Its own namespace is there from the start, and so is this event: it is
		// what shuts the doors the first time.
		Watches(&corev1.Namespace{}, toAll, builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
			return object.GetName() == v1alpha1.SystemNamespace
		}))).
		Complete(conflict.Retried(r))
}

// Reconcile implements reconcile.Reconciler. Applying what is there already
// writes nothing.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	objects, err := Render(r.Settings)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, object := range objects {
		err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return reconcile.Result{}, nil
}
