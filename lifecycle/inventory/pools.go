// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sluice.dev/api/v1alpha1"
)

// Selects tells whether the pool's selector takes in the node.
func Selects(pool *v1alpha1.NodePool, node *corev1.Node) bool {
	// An empty selector would take in every node; the schema refuses it, and so
	// does this.
	return len(pool.Spec.NodeSelector) > 0 &&
		labels.SelectorFromSet(pool.Spec.NodeSelector).Matches(labels.Set(node.Labels))
}

// PoolsOf are the names of the pools that select the node, sorted. The node
// belongs to the pool if there is one, and to none if there are more. A pool
// that is being deleted still counts: its nodes change hands once it has gone.
func PoolsOf(node *corev1.Node, pools []v1alpha1.NodePool) []string {
	var names []string
	for i := range pools {
		if Selects(&pools[i], node) {
			names = append(names, pools[i].Name)
		}
	}
	slices.Sort(names)
	return names
}
