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
	object func() client.Object
	list   func() client.ObjectList
}

// kinds are all of them. Nothing here gives rights, runs programs or holds
// secrets, and nothing may be added that does.
var kinds = []kind{
	{
		corev1.SchemeGroupVersion.WithKind("LimitRange"),
		func() client.Object { return &corev1.LimitRange{} },
		func() client.ObjectList { return &corev1.LimitRangeList{} },
	},
	{
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
		func() client.Object { return &networkingv1.NetworkPolicy{} },
		func() client.ObjectList { return &networkingv1.NetworkPolicyList{} },
	},
	{
		quotaKind,
		func() client.Object { return &corev1.ResourceQuota{} },
		func() client.ObjectList { return &corev1.ResourceQuotaList{} },
	},
}

var quotaKind = corev1.SchemeGroupVersion.WithKind("ResourceQuota")

// Objects has an empty object of each kind that policies may render: what is to
// be watched, and which of it a cache needs ([Ours]).
func Objects() []client.Object {
	objects := make([]client.Object, 0, len(kinds))
	for _, k := range kinds {
		objects = append(objects, k.object())
	}
	return objects
}

func kindOf(apiVersion, name string) (kind, bool) {
	at := slices.IndexFunc(kinds, func(k kind) bool {
		written, as := k.ToAPIVersionAndKind()
		return written == apiVersion && as == name
	})
	if at < 0 {
		return kind{}, false
	}
	return kinds[at], true
}

// allowedKinds lists them for people.
func allowedKinds() string {
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		apiVersion, name := k.ToAPIVersionAndKind()
		names = append(names, apiVersion+" "+name)
	}
	return strings.Join(names, ", ")
}
