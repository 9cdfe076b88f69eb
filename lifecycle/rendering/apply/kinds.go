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
)

// kindInfo is one that policies may render.
type kindInfo struct {
	schema.GroupVersionKind
	// subjects are whose policies may render it. What is in a namespace is a project's.
	subjects []SubjectKind
	// namespaced objects are in the project's namespace; others are cluster-wide.
	namespaced bool
	// newObject and list make empty ones of a kind of Kubernetes, which is decoded
	// strictly and watched whole. They are nil for the queue kinds, which come from
	// CRDs that may not be there: those the API server judges by its schema.
	newObject func() client.Object
	newList   func() client.ObjectList
	// specOf is what is rendered of such an object, beside its metadata.
	specOf func(client.Object) any
}

// isQueue tells that it is a kind of an engine.
func (k kindInfo) isQueue() bool { return k.newObject == nil }

var (
	projectOnly = []SubjectKind{SubjectProject}
	anySubject  = []SubjectKind{SubjectProject, SubjectDepartment, SubjectNodePool}

	quotaKind    = corev1.SchemeGroupVersion.WithKind("ResourceQuota")
	kueueVersion = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}
	kaiVersion   = schema.GroupVersion{Group: "scheduling.run.ai", Version: "v2"}
	krmVersion   = schema.GroupVersion{Group: "kai.resources", Version: "v1alpha1"}
)

// supportedKinds are all of them, in the order in which they are applied, and the other way
// round taken back: what holds the limit first, what is referred to before what
// refers to it. Nothing here gives rights, runs programs or holds secrets, and
// nothing may be added that does.
var supportedKinds = []kindInfo{
	{
		quotaKind, projectOnly, true,
		func() client.Object { return &corev1.ResourceQuota{} },
		func() client.ObjectList { return &corev1.ResourceQuotaList{} },
		func(object client.Object) any { return object.(*corev1.ResourceQuota).Spec },
	},
	{
		corev1.SchemeGroupVersion.WithKind("LimitRange"), projectOnly, true,
		func() client.Object { return &corev1.LimitRange{} },
		func() client.ObjectList { return &corev1.LimitRangeList{} },
		func(object client.Object) any { return object.(*corev1.LimitRange).Spec },
	},
	{
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), projectOnly, true,
		func() client.Object { return &networkingv1.NetworkPolicy{} },
		func() client.ObjectList { return &networkingv1.NetworkPolicyList{} },
		func(object client.Object) any { return object.(*networkingv1.NetworkPolicy).Spec },
	},
	{GroupVersionKind: kueueVersion.WithKind("ResourceFlavor"), subjects: anySubject},
	{GroupVersionKind: kueueVersion.WithKind("Cohort"), subjects: anySubject},
	{GroupVersionKind: kueueVersion.WithKind("ClusterQueue"), subjects: anySubject},
	{GroupVersionKind: kueueVersion.WithKind("LocalQueue"), subjects: projectOnly, namespaced: true},
	{GroupVersionKind: kaiVersion.WithKind("Queue"), subjects: anySubject},
	{GroupVersionKind: krmVersion.WithKind("Department"), subjects: []SubjectKind{SubjectDepartment}},
	{GroupVersionKind: krmVersion.WithKind("Project"), subjects: []SubjectKind{SubjectProject}},
}

// WatchedObjects has an empty object of each kind of Kubernetes that policies may render:
// what is to be watched, and which of it a cache needs ([Ours]).
func WatchedObjects() []client.Object {
	var objects []client.Object
	for _, k := range supportedKinds {
		if !k.isQueue() {
			objects = append(objects, k.newObject())
		}
	}
	return objects
}

// QueueKinds are the kinds of engines that policies may render. Each comes from a
// CRD, which may not be there.
func QueueKinds() []schema.GroupVersionKind {
	var list []schema.GroupVersionKind
	for _, k := range supportedKinds {
		if k.isQueue() {
			list = append(list, k.GroupVersionKind)
		}
	}
	return list
}

// lookupKind is the kind that is written so, and its place in the list.
func lookupKind(apiVersion, name string) (kindInfo, int, bool) {
	at := slices.IndexFunc(supportedKinds, func(k kindInfo) bool {
		written, as := k.ToAPIVersionAndKind()
		return written == apiVersion && as == name
	})
	if at < 0 {
		return kindInfo{}, 0, false
	}
	return supportedKinds[at], at, true
}

// isQueueKindName tells whether a queue kind is called so, in whatever version.
func isQueueKindName(name any) bool {
	return slices.ContainsFunc(supportedKinds, func(k kindInfo) bool { return k.isQueue() && k.Kind == name })
}

// formatAllowedKinds lists those of a subject for people.
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
