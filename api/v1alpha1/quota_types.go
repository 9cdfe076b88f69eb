// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// GPUQuota is how many physical GPUs somebody may have in one node pool. GPUs
// are quantities in steps of a thousandth: "1", "500m" (half a GPU) and "1.5"
// are allowed, "0.0001" and negative numbers are not; there are less than 100000.
//
// +kubebuilder:validation:XValidation:rule="(type(self.guaranteed) == int ? double(int(self.guaranteed)) : quantity(self.guaranteed).asApproximateFloat()) <= (type(self.limit) == int ? double(int(self.limit)) : quantity(self.limit).asApproximateFloat())",fieldPath=".guaranteed",message="must not be more than the limit"
type GPUQuota struct {
	// Guaranteed is the number of GPUs that are there whenever they are asked
	// for. It is never more than the limit.
	//
	// +optional
	// +kubebuilder:default="0"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self < 100000 : isQuantity(self) && [quantity(self).asApproximateFloat() * 1000.0].all(m, m >= 0.0 && m < 100000000.0 && m - double(int(m + 0.5)) < 0.000001 && double(int(m + 0.5)) - m < 0.000001)",message="must be a number of GPUs, at least 0 and less than 100000, in steps of a thousandth, such as 1, 500m or 0.5"
	Guaranteed resource.Quantity `json:"guaranteed,omitempty"`

	// Limit is the most GPUs that can be in use at once, borrowed ones included.
	//
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self < 100000 : isQuantity(self) && [quantity(self).asApproximateFloat() * 1000.0].all(m, m >= 0.0 && m < 100000000.0 && m - double(int(m + 0.5)) < 0.000001 && double(int(m + 0.5)) - m < 0.000001)",message="must be a number of GPUs, at least 0 and less than 100000, in steps of a thousandth, such as 1, 500m or 0.5"
	Limit resource.Quantity `json:"limit"`

	// OverQuotaWeight says how idle GPUs beyond the guarantees are divided among
	// those who want them: in proportion to the weights. 0 means never any, whatever
	// the limit says; the default is 1, the most 1000.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	OverQuotaWeight *int32 `json:"overQuotaWeight,omitempty"`
}

// ResourceQuota is how much CPU and memory somebody's pods may request at once, on
// all nodes together. What is left out is not limited.
type ResourceQuota struct {
	// CPU is the most CPU that the pods may request at once, in cores: "64", "500m".
	// It is at least 0 and less than 10 million.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=12
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self < 10000000 : isQuantity(self) && [quantity(self).asApproximateFloat()].all(q, q >= 0.0 && q < 10000000.0)",message="must be a number of cores, at least 0 and less than 10 million, such as 64 or 500m"
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// Memory is the most memory that the pods may request at once, in bytes: "512Gi".
	// It is at least 0 and less than 1 Ei.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self < 1152921504606846976 : isQuantity(self) && [quantity(self).asApproximateFloat()].all(q, q >= 0.0 && q < 1152921504606846976.0)",message="must be an amount of memory, at least 0 and less than 1Ei, such as 512Gi"
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// Oversubscription says whether a department may promise its projects more than
// it is guaranteed itself.
//
// +kubebuilder:validation:Enum=Deny;Allow
type Oversubscription string

// The rules for promising.
const (
	// OversubscriptionDeny refuses a project whose guarantee, with those of the
	// department's other projects, is more than the department's.
	OversubscriptionDeny Oversubscription = "Deny"
	// OversubscriptionAllow lets it in: not all can then have their guarantee at once.
	OversubscriptionAllow Oversubscription = "Allow"
)

// PodSecurity is a level of Kubernetes' Pod Security Standards.
//
// +kubebuilder:validation:Enum=privileged;baseline;restricted
type PodSecurity string

// The levels, the loosest first.
const (
	PodSecurityPrivileged PodSecurity = "privileged"
	PodSecurityBaseline   PodSecurity = "baseline"
	PodSecurityRestricted PodSecurity = "restricted"
)

// PoolQuota is a GPUQuota in one node pool.
type PoolQuota struct {
	// Name is the name of the NodePool.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// GPU is how many of the pool's GPUs may be had.
	//
	// +required
	GPU GPUQuota `json:"gpu"`
}

// MaxInUse is the most GPUs that can be in use at once: the limit, and the guarantee
// alone where nothing may be borrowed.
func (q GPUQuota) MaxInUse() resource.Quantity {
	if q.Weight() == 0 {
		return q.Guaranteed
	}
	return q.Limit
}

// Weight is the over-quota weight, with the default where none was set.
func (q GPUQuota) Weight() int32 {
	if q.OverQuotaWeight == nil {
		return 1
	}
	return *q.OverQuotaWeight
}

// GPUUsage is a quota together with what is used of it, in physical GPUs.
type GPUUsage struct {
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

// PoolUsage is a GPUUse in one node pool.
type PoolUsage struct {
	// Name is the name of the NodePool.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	Name string `json:"name"`

	GPUUsage `json:",inline"`

	// Uncounted is the share of pods that were there before the quota. The quota
	// is held that much lower until they are gone.
	//
	// +optional
	Uncounted resource.Quantity `json:"uncounted,omitempty"`
}

// SetOverQuota sets OverQuota of the whole and of each of its pools.
func SetOverQuota(all *GPUUsage, pools []PoolUsage) {
	sum := resource.NewMilliQuantity(0, resource.DecimalSI)
	for i := range pools {
		pools[i].OverQuota = pools[i].overGuaranteed()
		sum.Add(pools[i].OverQuota)
	}
	// Of a pool that is not told apart only the whole tells.
	if all.OverQuota = all.overGuaranteed(); all.OverQuota.Cmp(*sum) < 0 {
		all.OverQuota = *sum
	}
}

// overGuaranteed is what is allocated beyond what is guaranteed.
func (u *GPUUsage) overGuaranteed() resource.Quantity {
	return *resource.NewMilliQuantity(max(0, u.Allocated.MilliValue()-u.Guaranteed.MilliValue()), resource.DecimalSI)
}
