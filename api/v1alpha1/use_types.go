// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// GPUUse is a quota together with what is used of it, in physical GPUs.
type GPUUse struct {
	// Guaranteed is the number of GPUs that are guaranteed.
	//
	// +optional
	Guaranteed resource.Quantity `json:"guaranteed,omitempty"`

	// Limit is the most GPUs that may be in use at once.
	//
	// +optional
	Limit resource.Quantity `json:"limit,omitempty"`

	// Allocated is what pods that were let in are charged.
	//
	// +optional
	Allocated resource.Quantity `json:"allocated,omitempty"`

	// OverQuota is how much of that is more than what is guaranteed.
	//
	// +optional
	OverQuota resource.Quantity `json:"overQuota,omitempty"`

	// Pending is what pods are charged that wait for a place, and what the
	// controllers ask for whose pods were refused for want of quota.
	//
	// +optional
	Pending resource.Quantity `json:"pending,omitempty"`
}

// PoolUse is a GPUUse in one node pool.
type PoolUse struct {
	// Name is the name of the NodePool.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	Name string `json:"name"`

	GPUUse `json:",inline"`

	// Uncounted is the share of pods that were there before the quota. The quota
	// is held that much lower until they are gone.
	//
	// +optional
	Uncounted resource.Quantity `json:"uncounted,omitempty"`
}
