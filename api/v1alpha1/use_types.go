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

	// Allocated is what pods are charged that were let in, until they have ended: by
	// the quota, and where Kueue has the turn, by Kueue too. A pod that was let in and
	// has no node yet is in it, and pending as well.
	//
	// +optional
	Allocated resource.Quantity `json:"allocated,omitempty"`

	// OverQuota is how much of that is more than what is guaranteed. It is reckoned in
	// each node pool by itself: what is free in one is no room in another.
	//
	// +optional
	OverQuota resource.Quantity `json:"overQuota,omitempty"`

	// Pending is what pods are charged that wait for a node or in a queue of Kueue's,
	// what workloads ask for whose pods Kueue has not let come to be, and what
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

// Reckon sets OverQuota of the whole and of each of its pools.
func Reckon(all *GPUUse, pools []PoolUse) {
	sum := resource.NewMilliQuantity(0, resource.DecimalSI)
	for i := range pools {
		pools[i].OverQuota = pools[i].beyond()
		sum.Add(pools[i].OverQuota)
	}
	// Of a pool that is not told apart only the whole tells.
	if all.OverQuota = all.beyond(); all.OverQuota.Cmp(*sum) < 0 {
		all.OverQuota = *sum
	}
}

// beyond is what is allocated beyond what is guaranteed.
func (u *GPUUse) beyond() resource.Quantity {
	return *resource.NewMilliQuantity(max(0, u.Allocated.MilliValue()-u.Guaranteed.MilliValue()), resource.DecimalSI)
}
