// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// supportedKind is a kind of object that policies may render.
type supportedKind struct {
	Kind

	// subjects are the subjects for which policies may render the kind. Namespaced
	// objects are a project's.
	subjects []SubjectKind
}

var (
	projectOnly = []SubjectKind{SubjectProject}
	anySubject  = subjectKinds

	quotaKind    = corev1.SchemeGroupVersion.WithKind("ResourceQuota")
	kueueVersion = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}
	kaiVersion   = schema.GroupVersion{Group: "scheduling.run.ai", Version: "v2"}
	krmVersion   = schema.GroupVersion{Group: "kai.resources", Version: "v1alpha1"}
)

// supportedKinds are all of them, in the order in which they are applied: quotas
// first, and each object before those that refer to it. No kind may be added that
// grants rights, runs programs or holds secrets.
var supportedKinds = []supportedKind{
	{Kind{
		GroupVersionKind: quotaKind, Namespaced: true,
		New:     func() client.Object { return &corev1.ResourceQuota{} },
		NewList: func() client.ObjectList { return &corev1.ResourceQuotaList{} },
		Content: func(object client.Object) any { return object.(*corev1.ResourceQuota).Spec },
		// A quota that a user prepared with other scopes would look right and count
		// no pod.
		Immutable: func(object client.Object) any {
			quota := object.(*corev1.ResourceQuota)
			return []any{quota.Spec.Scopes, quota.Spec.ScopeSelector}
		},
	}, projectOnly},
	{Kind{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("LimitRange"), Namespaced: true,
		New:     func() client.Object { return &corev1.LimitRange{} },
		NewList: func() client.ObjectList { return &corev1.LimitRangeList{} },
		Content: func(object client.Object) any { return object.(*corev1.LimitRange).Spec },
	}, projectOnly},
	{Kind{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), Namespaced: true,
		New:     func() client.Object { return &networkingv1.NetworkPolicy{} },
		NewList: func() client.ObjectList { return &networkingv1.NetworkPolicyList{} },
		Content: func(object client.Object) any { return object.(*networkingv1.NetworkPolicy).Spec },
	}, projectOnly},
	{Kind{
		GroupVersionKind: v1alpha1.GroupVersion.WithKind("ProjectParameters"), Namespaced: true,
		New:     func() client.Object { return &v1alpha1.ProjectParameters{} },
		NewList: func() client.ObjectList { return &v1alpha1.ProjectParametersList{} },
		Content: func(object client.Object) any { return object.(*v1alpha1.ProjectParameters).Spec },
	}, projectOnly},
	{Kind{GroupVersionKind: kueueVersion.WithKind("ResourceFlavor")}, anySubject},
	{Kind{GroupVersionKind: kueueVersion.WithKind("Cohort")}, anySubject},
	{Kind{GroupVersionKind: kueueVersion.WithKind("ClusterQueue")}, anySubject},
	{Kind{GroupVersionKind: kueueVersion.WithKind("LocalQueue"), Namespaced: true}, projectOnly},
	{Kind{GroupVersionKind: kaiVersion.WithKind("Queue")}, anySubject},
	{Kind{GroupVersionKind: krmVersion.WithKind("Department")}, []SubjectKind{SubjectDepartment}},
	{Kind{GroupVersionKind: krmVersion.WithKind("Project")}, projectOnly},
}

// WatchedObjects returns an empty object of each kind of Kubernetes that policies may
// render. A cache needs only those with ManagedLabels, and all ResourceQuotas: [ListQuotas].
func WatchedObjects() []client.Object {
	var objects []client.Object
	for _, k := range supportedKinds {
		if !k.isQueue() {
			objects = append(objects, k.New())
		}
	}
	return objects
}

// QueueKinds returns the kinds of schedulers that policies may render. Each comes from
// a CRD, which may not be installed.
func QueueKinds() []schema.GroupVersionKind {
	var list []schema.GroupVersionKind
	for _, k := range supportedKinds {
		if k.isQueue() {
			list = append(list, k.GroupVersionKind)
		}
	}
	return list
}

// lookupKind returns the kind with this apiVersion and kind, and its place in the list.
func lookupKind(apiVersion, name string) (supportedKind, int, bool) {
	at := slices.IndexFunc(supportedKinds, func(k supportedKind) bool {
		version, kind := k.ToAPIVersionAndKind()
		return version == apiVersion && kind == name
	})
	if at < 0 {
		return supportedKind{}, 0, false
	}
	return supportedKinds[at], at, true
}

// isQueueKindName reports whether a queue kind of any version has the name.
func isQueueKindName(name any) bool {
	return slices.ContainsFunc(supportedKinds, func(k supportedKind) bool { return k.isQueue() && k.Kind.Kind == name })
}

// formatAllowedKinds returns the kinds that policies may render for a subject.
func formatAllowedKinds(of SubjectKind) string {
	var names []string
	for _, k := range supportedKinds {
		if slices.Contains(k.subjects, of) {
			apiVersion, name := k.ToAPIVersionAndKind()
			names = append(names, apiVersion+" "+name)
		}
	}
	return strings.Join(names, ", ")
}
