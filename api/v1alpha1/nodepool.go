// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// PlansMIG reports whether the pool's GPUs are cut by demand: sharing is MIG and
// nobody laid down a layout.
func (s *NodePoolSpec) PlansMIG() bool {
	return s.Sharing == SharingMIG && (s.MIG == nil || s.MIG.Planning != MIGPlanningStatic)
}
