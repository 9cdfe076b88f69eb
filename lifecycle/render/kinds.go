// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is one that policies may render.
type kind struct {
	schema.GroupVersionKind
	// of are whose policies may render it. What is in a namespace is a project's.
	of []SubjectKind
	// namespaced objects are in the project's namespace; others are cluster-wide.
	namespaced bool
	// object and list make empty ones of a kind of Kubernetes, which is decoded
	// strictly and watched whole. They are nil for the queue kinds, which come from
	// CRDs that may not be there: those the API server judges by its schema.
	object func() client.Object
	list   func() client.ObjectList
	// spec is what is rendered of such an object, beside its metadata.
	spec func(client.Object) any
}

// isQueue tells that it is a kind of an engine.
func (k kind) isQueue() bool { return k.object == nil }

var (
	inNamespace = []SubjectKind{ForProject}
	anySubject  = []SubjectKind{ForProject, ForDepartment, ForNodePool}

	quotaKind = corev1.SchemeGroupVersion.WithKind("ResourceQuota")
	kueue     = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}
	kai       = schema.GroupVersion{Group: "scheduling.run.ai", Version: "v2"}
	krm       = schema.GroupVersion{Group: "kai.resources", Version: "v1alpha1"}
)

// kinds are all of them, in the order in which they are applied, and the other way
// round taken back: what holds the limit first, what is referred to before what
// refers to it. Nothing here gives rights, runs programs or holds secrets, and
// nothing may be added that does.
var kinds = []kind{
	{
		quotaKind, inNamespace, true,
		func() client.Object { return &corev1.ResourceQuota{} },
		func() client.ObjectList { return &corev1.ResourceQuotaList{} },
		func(object client.Object) any { return object.(*corev1.ResourceQuota).Spec },
	},
	{
		corev1.SchemeGroupVersion.WithKind("LimitRange"), inNamespace, true,
		func() client.Object { return &corev1.LimitRange{} },
		func() client.ObjectList { return &corev1.LimitRangeList{} },
		func(object client.Object) any { return object.(*corev1.LimitRange).Spec },
	},
	{
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), inNamespace, true,
		func() client.Object { return &networkingv1.NetworkPolicy{} },
		func() client.ObjectList { return &networkingv1.NetworkPolicyList{} },
		func(object client.Object) any { return object.(*networkingv1.NetworkPolicy).Spec },
	},
	{GroupVersionKind: kueue.WithKind("ResourceFlavor"), of: anySubject},
	{GroupVersionKind: kueue.WithKind("Cohort"), of: anySubject},
	{GroupVersionKind: kueue.WithKind("ClusterQueue"), of: anySubject},
	{GroupVersionKind: kueue.WithKind("LocalQueue"), of: inNamespace, namespaced: true},
	{GroupVersionKind: kai.WithKind("Queue"), of: anySubject},
	{GroupVersionKind: krm.WithKind("Department"), of: []SubjectKind{ForDepartment}},
	{GroupVersionKind: krm.WithKind("Project"), of: []SubjectKind{ForProject}},
}

// Objects has an empty object of each kind of Kubernetes that policies may render:
// what is to be watched, and which of it a cache needs ([Ours]).
func Objects() []client.Object {
	var objects []client.Object
	for _, k := range kinds {
		if !k.isQueue() {
			objects = append(objects, k.object())
		}
	}
	return objects
}

// QueueKinds are the kinds of engines that policies may render. Each comes from a
// CRD, which may not be there.
func QueueKinds() []schema.GroupVersionKind {
	var list []schema.GroupVersionKind
	for _, k := range kinds {
		if k.isQueue() {
			list = append(list, k.GroupVersionKind)
		}
	}
	return list
}

// kindOf is the kind that is written so, and its place in the list.
func kindOf(apiVersion, name string) (kind, int, bool) {
	at := slices.IndexFunc(kinds, func(k kind) bool {
		written, as := k.ToAPIVersionAndKind()
		return written == apiVersion && as == name
	})
	if at < 0 {
		return kind{}, 0, false
	}
	return kinds[at], at, true
}

// isQueueName tells whether a queue kind is called so, in whatever version.
func isQueueName(name any) bool {
	return slices.ContainsFunc(kinds, func(k kind) bool { return k.isQueue() && k.Kind == name })
}

// allowedKinds lists those of a subject for people.
func allowedKinds(of SubjectKind) string {
	var names []string
	for _, k := range kinds {
		if slices.Contains(k.of, of) {
			apiVersion, name := k.ToAPIVersionAndKind()
			names = append(names, apiVersion+" "+name)
		}
	}
	return strings.Join(names, ", ")
}
