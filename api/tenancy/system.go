// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"slices"
	"strings"
)

// systemNamespaces are those of the engines and operators that Sluice works
// with, and its own.
var systemNamespaces = map[string]bool{
	"default":                  true,
	"gpu-operator":             true,
	"hami-system":              true,
	"kai-resource-reservation": true,
	"kai-scale-adjust":         true,
	"kai-scheduler":            true,
	"koordinator-system":       true,
	"kueue-system":             true,
	"node-feature-discovery":   true,
	"nvidia-gpu-operator":      true,
	"sluice-system":            true,
	"volcano-system":           true,
	"yunikorn":                 true,
}

// ExemptNamespaces are those, by name, in which pods may ask for GPUs outside of
// projects: Kubernetes' own, the engines' and the operators'. Sorted. In
// namespace default they may not: it is nobody's.
func ExemptNamespaces() []string {
	names := []string{"kube-node-lease", "kube-system"}
	for name := range systemNamespaces {
		if name != "default" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// IsSystem tells whether the namespace of that name can never be a project's:
// default, kube-* (which Kubernetes reserves), openshift-*, and those of the
// engines, the operators and Sluice.
func IsSystem(name string) bool {
	return systemNamespaces[name] ||
		strings.HasPrefix(name, "kube-") ||
		strings.HasPrefix(name, "openshift-")
}
