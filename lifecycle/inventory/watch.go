// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// NodeChanged passes what can change a node's pool, its GPUs or its resources,
// and keeps out the heartbeats, of which a large cluster has hundreds a second.
var NodeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, ok2 := e.ObjectNew.(*corev1.Node)
		return !ok || !ok2 ||
			!maps.Equal(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity) ||
			!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable)
	},
}

// Requests is one request for each object of the list.
func Requests(list client.ObjectList) []reconcile.Request {
	var requests []reconcile.Request
	// Fails only for what is no list.
	_ = meta.EachListItem(list, func(object runtime.Object) error {
		if named, ok := object.(client.Object); ok {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{
				Namespace: named.GetNamespace(), Name: named.GetName(),
			}})
		}
		return nil
	})
	return requests
}
