// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import "strings"

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

// IsSystem tells whether the namespace of that name can never be a project's:
// default, kube-* (which Kubernetes reserves), openshift-*, and those of the
// engines, the operators and Sluice.
func IsSystem(name string) bool {
	return systemNamespaces[name] ||
		strings.HasPrefix(name, "kube-") ||
		strings.HasPrefix(name, "openshift-")
}
