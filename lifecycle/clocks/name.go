// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/roots"
)

// clockOf is the name of a root's clock. A workload that is made again under its
// name has the same.
func clockOf(root roots.Root) types.NamespacedName {
	return types.NamespacedName{Namespace: root.Namespace, Name: v1alpha1.WorkloadClockName(root.Group, root.Kind, root.Name)}
}
