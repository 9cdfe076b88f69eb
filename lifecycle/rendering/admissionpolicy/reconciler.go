// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissionpolicy keeps Sluice's ValidatingAdmissionPolicies in force.
//
// The policies are YAML in manifests/base/admission/policies. The API server itself evaluates
// them, so they hold while the webhook is down. They never refuse what Kubernetes does to an
// admitted pod: binding, status, garbage collection, eviction. Identities and names that differ
// between clusters are in one AdmissionParameters object. The package applies the policies, their
// bindings and that object, and restores them, and the kind of that object, when they are changed
// or deleted. Of the policies it changes only whether those outside projects warn or deny, and
// adds the kinds of the setting podTemplates to those that name every kind of workload.
package admissionpolicy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// Reconciler applies the admission policies and their parameters.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Files are those of package manifests.
	Files fs.FS
	// Parameters are added to those of every cluster.
	Parameters v1alpha1.AdmissionParametersSpec
	// DenyGPUPodsOutside refuses pods and claims that request a GPU outside projects. Otherwise
	// they get a warning.
	DenyGPUPodsOutside bool

	cache apply.Cache
}

// The kinds that the reconciler applies. The API server adds defaults to all of them.
var (
	parameterKinds = []apply.Kind{{
		GroupVersionKind: v1alpha1.GroupVersion.WithKind("AdmissionParameters"),
		New:              func() client.Object { return &v1alpha1.AdmissionParameters{} },
		NewList:          func() client.ObjectList { return &v1alpha1.AdmissionParametersList{} },
		Content:          func(o client.Object) any { return o.(*v1alpha1.AdmissionParameters).Spec },
	}}
	policyKinds = []apply.Kind{{
		GroupVersionKind: admissionv1.SchemeGroupVersion.WithKind(policyKind),
		New:              func() client.Object { return &admissionv1.ValidatingAdmissionPolicy{} },
		NewList:          func() client.ObjectList { return &admissionv1.ValidatingAdmissionPolicyList{} },
		Content:          func(o client.Object) any { return o.(*admissionv1.ValidatingAdmissionPolicy).Spec },
	}, {
		GroupVersionKind: admissionv1.SchemeGroupVersion.WithKind(bindingKind),
		New:              func() client.Object { return &admissionv1.ValidatingAdmissionPolicyBinding{} },
		NewList:          func() client.ObjectList { return &admissionv1.ValidatingAdmissionPolicyBindingList{} },
		Content:          func(o client.Object) any { return o.(*admissionv1.ValidatingAdmissionPolicyBinding).Spec },
	}}
)

// parameterKindRequeue is the time to wait for the API server to serve the restored kind.
const parameterKindRequeue = time.Second

// allPoliciesRequest is the only request: all policies are applied together.
var allPoliciesRequest = reconcile.Request{NamespacedName: client.ObjectKey{Name: "admission-policies"}}

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	toAll := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{allPoliciesRequest}
	})
	managed := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice
	}))
	return ctrl.NewControllerManagedBy(mgr).
		Named("admission-policies").
		Watches(&admissionv1.ValidatingAdmissionPolicy{}, toAll, managed).
		Watches(&admissionv1.ValidatingAdmissionPolicyBinding{}, toAll, managed).
		Watches(&v1alpha1.AdmissionParameters{}, toAll).
		Watches(&v1alpha1.NodePool{}, toAll, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// Sluice's own namespace always exists, so its first event applies the policies at startup.
		Watches(&corev1.Namespace{}, toAll, builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
			return object.GetName() == v1alpha1.SystemNamespace
		}))).
		Complete(apply.RequeueOnConflict(r))
}

// Reconcile applies the parameters, then the policies.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if result, err := r.reconcileParameters(ctx); err != nil || !result.IsZero() {
		return result, err
	}
	return reconcile.Result{}, r.reconcilePolicies(ctx)
}

// reconcileParameters applies the parameter object. If the API server does not serve its kind, it
// restores the CustomResourceDefinition and requeues.
func (r *Reconciler) reconcileParameters(ctx context.Context) (reconcile.Result, error) {
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return reconcile.Result{}, fmt.Errorf("list node pools: %w", err)
	}
	further := r.Parameters
	for i := range pools.Items {
		for _, named := range pools.Items[i].Spec.Resources {
			further.GPUResources = append(slices.Clip(further.GPUResources), named.Name)
		}
	}
	parameters, err := apply.ToUnstructured(NewParameters(further))
	if err != nil {
		return reconcile.Result{}, err
	}
	err = r.apply(ctx, "admission parameters", parameterKinds, []*unstructured.Unstructured{parameters})
	if err == nil {
		return reconcile.Result{}, nil
	}
	crd, loadErr := loadParameterCRD(r.Files)
	if loadErr != nil {
		return reconcile.Result{}, loadErr
	}
	if live := crd.DeepCopy(); !apierrors.IsNotFound(r.Live.Get(ctx, client.ObjectKeyFromObject(crd), live)) {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).Info("Restoring the kind of the admission parameters")
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("apply CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	return reconcile.Result{RequeueAfter: parameterKindRequeue}, nil
}

func (r *Reconciler) reconcilePolicies(ctx context.Context) error {
	policies, err := LoadPolicies(r.Files, r.DenyGPUPodsOutside)
	if err != nil {
		return err
	}
	var parameters v1alpha1.AdmissionParameters
	err = r.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get admission parameters: %w", err)
	}
	if err := addKinds(policies, parameters.Spec.PodTemplates); err != nil {
		return fmt.Errorf("add the kinds of podTemplates: %w", err)
	}
	return r.apply(ctx, "admission policies", policyKinds, policies)
}

// apply applies what differs from the cache. One object that the API server refuses does not hold
// up the others.
func (r *Reconciler) apply(ctx context.Context, owner string, kinds []apply.Kind, objects []*unstructured.Unstructured) error {
	applier := apply.Applier{Client: r.Client, Live: r.Live, Cache: &r.cache}
	result, err := applier.ApplySet(ctx, apply.Set{Owner: owner, Labels: apply.ManagedLabels(), Kinds: kinds}, objects)
	if err != nil {
		return err
	}
	var errs []error
	for _, failure := range result.Failures {
		errs = append(errs, failure.Err)
	}
	return errors.Join(errs...)
}
