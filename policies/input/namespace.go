// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxNamespaceValueBytes limits a value of an annotation, and maxNamespaceBytes all labels and annotations with
	// their keys. Each result of a policy that reads them is kept with them.
	maxNamespaceValueBytes = 4 << 10
	maxNamespaceBytes      = 64 << 10
)

// Namespace is input.namespace: the object's namespace. What users may write in it is no identity.
type Namespace struct {
	// Name is the name.
	Name string `json:"name"`
	// Labels are those of the namespace.
	Labels map[string]string `json:"labels"`
	// Annotations are those of the namespace. A value of more than 4 KiB is left out, and so is what exceeds 64 KiB in
	// all: the labels come first, and both are in the order of their keys.
	Annotations map[string]string `json:"annotations"`
	// Truncated reports whether something was left out.
	Truncated bool `json:"truncated"`
}

// NewNamespace returns input.namespace.
func NewNamespace(namespace *corev1.Namespace) Namespace {
	n := Namespace{Name: namespace.Name}
	remaining := maxNamespaceBytes
	n.Labels = n.limit(namespace.Labels, &remaining)
	n.Annotations = n.limit(namespace.Annotations, &remaining)
	return n
}

// limit returns the entries that fit.
func (n *Namespace) limit(entries map[string]string, remaining *int) map[string]string {
	kept := make(map[string]string, len(entries))
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		value := entries[key]
		if size := len(key) + len(value); len(value) <= maxNamespaceValueBytes && size <= *remaining {
			kept[key] = value
			*remaining -= size
		} else {
			n.Truncated = true
		}
	}
	return kept
}
