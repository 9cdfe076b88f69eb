// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doors shuts the ways round Sluice's governance that need no Rego.
//
// Enters: the configured identities, DeviceClasses and settings. Leaves:
// ValidatingAdmissionPolicies with their bindings, which the API server evaluates
// itself, so that they hold while the webhook is down and stop nothing that is in
// order.
//
// It never shuts out what Kubernetes itself does to a pod that was admitted:
// binding, status, garbage collection, eviction. It sees one object at a time:
// what a pod only names, it judges where that is made.
package admissionpolicy

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/conflict"
)

// Reconciler keeps the doors shut: whatever is changed or taken away comes back.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Settings are the platform team's.
	Settings Settings
}

// allPoliciesRequest is the one request that there is: they are applied together.
var allPoliciesRequest = reconcile.Request{NamespacedName: client.ObjectKey{Name: "doors"}}

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	toAll := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{allPoliciesRequest}
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
		Complete(conflict.WithRetry(r))
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

// definitions are the doors, in the order in which they are shut.
var definitions = []definition{
	namespaceLabels,
	podBindings, podNodeNames,
	managedMetadata, controllerReferences,
	ephemeralContainers,
	workloadMetadata, queuedWorkloads,
	queueNames, kueueObjects,
	ownWorkloads, projectDeletions,
	renderedObjects, gracePeriods,
	kaiQueues, podGroups, podGroupMembership, sharedGPUConfigMaps, krmNamespaces,
	deviceClasses, nodeChanges,
	priorityClasses, gpuClaims,
	gpuPods, // the last: where it is shut, all are
}

// Settings are what a platform team decides about the doors.
type Settings struct {
	// Identities are believed in addition to those that every cluster has.
	Identities Identities
	// DeviceClasses are those whose devices are GPUs, in addition to NVIDIA's own.
	DeviceClasses []string
	// DenyGPUPodsOutside refuses pods and claims that ask for a GPU outside of
	// projects; else they are warned.
	DenyGPUPodsOutside bool
}

// variables are what every door's CEL may speak of.
func (s Settings) variables() []admissionv1.Variable {
	return append(builtInIdentities.merge(s.Identities).variables(), gpuNameVariables(s.DeviceClasses)...)
}

// Names are those of all policies, and of their bindings.
func Names() []string {
	names := make([]string, 0, len(definitions))
	for _, d := range definitions {
		names = append(names, d.objectMeta().Name)
	}
	return names
}

// Render makes all objects, in the order in which they are to be applied.
func Render(settings Settings) ([]*unstructured.Unstructured, error) {
	common := settings.variables()
	var objects []runtime.Object
	for _, d := range definitions {
		action := admissionv1.Deny
		if d.mayWarn && !settings.DenyGPUPodsOutside {
			action = admissionv1.Warn
		}
		objects = append(objects, d.policy(common), d.binding(action))
	}
	rendered := make([]*unstructured.Unstructured, 0, len(objects))
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("rendering %T: %w", object, err)
		}
		// Neither is ours to write.
		unstructured.RemoveNestedField(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		rendered = append(rendered, &unstructured.Unstructured{Object: content})
	}
	return rendered, nil
}
