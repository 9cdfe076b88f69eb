// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// GPUQuota is a quota of physical GPUs in one node pool. A number of GPUs is a quantity in steps
// of one thousandth, at least 0 and less than 100000: "1", "500m" (half a GPU) and "1.5" are
// valid, "0.0001" is not.
//
// +kubebuilder:validation:XValidation:rule="(type(self.guaranteed) == int ? double(int(self.guaranteed)) : quantity(self.guaranteed).asApproximateFloat()) <= (type(self.limit) == int ? double(int(self.limit)) : quantity(self.limit).asApproximateFloat())",fieldPath=".guaranteed",message="must not be more than the limit"
type GPUQuota struct {
	// Guaranteed is the number of GPUs that are available whenever they are requested. It
	// must not exceed the limit. Default: 0.
	//
	// +optional
	// +kubebuilder:default="0"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self < 100000 : isQuantity(self) && [quantity(self).asApproximateFloat() * 1000.0].all(m, m >= 0.0 && m < 100000000.0 && m - double(int(m + 0.5)) < 0.000001 && double(int(m + 0.5)) - m < 0.000001)",message="must be a number of GPUs, at least 0 and less than 100000, in steps of a thousandth, such as 1, 500m or 0.5"
	Guaranteed resource.Quantity `json:"guaranteed,omitempty"`

	// Limit is the largest number of GPUs in use at the same time, including GPUs over quota.
	//
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self < 100000 : isQuantity(self) && [quantity(self).asApproximateFloat() * 1000.0].all(m, m >= 0.0 && m < 100000000.0 && m - double(int(m + 0.5)) < 0.000001 && double(int(m + 0.5)) - m < 0.000001)",message="must be a number of GPUs, at least 0 and less than 100000, in steps of a thousandth, such as 1, 500m or 0.5"
	Limit resource.Quantity `json:"limit"`

	// OverQuotaWeight is a weight from 0 to 1000. Idle GPUs are divided by weight among the
	// projects that request more than their guarantee. With 0 only the guaranteed GPUs can be
	// used, regardless of the limit. Default: 1.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	OverQuotaWeight *int32 `json:"overQuotaWeight,omitempty"`
}

// ResourceQuota limits the CPU and memory that pods may request at the same time, on all nodes
// together. In a department a resource that is left out is not limited.
type ResourceQuota struct {
	// CPU is the largest number of cores that pods may request at the same time, such as 64
	// or 500m. It must be at least 0 and less than 10 million.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=12
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self < 10000000 : isQuantity(self) && [quantity(self).asApproximateFloat()].all(q, q >= 0.0 && q < 10000000.0)",message="must be a number of cores, at least 0 and less than 10 million, such as 64 or 500m"
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// Memory is the largest amount of memory in bytes that pods may request at the same time,
	// such as 512Gi. It must be at least 0 and less than 1Ei.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self < 1152921504606846976 : isQuantity(self) && [quantity(self).asApproximateFloat()].all(q, q >= 0.0 && q < 1152921504606846976.0)",message="must be an amount of memory, at least 0 and less than 1Ei, such as 512Gi"
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// ObjectLimits limits the number of objects in a project's namespace, by their name in a
// ResourceQuota: pods (those that have not ended), services, configmaps, secrets,
// persistentvolumeclaims, replicationcontrollers, and count/<resource>.<group> for others, such
// as count/jobs.batch. At most 32 kinds.
//
// +kubebuilder:validation:MaxProperties=32
// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['pods', 'services', 'services.nodeports', 'services.loadbalancers', 'configmaps', 'secrets', 'persistentvolumeclaims', 'replicationcontrollers'] || k.startsWith('count/'))",message="keys must be pods, services, services.nodeports, services.loadbalancers, configmaps, secrets, persistentvolumeclaims, replicationcontrollers, or count/<resource>.<group>, such as count/jobs.batch"
// +kubebuilder:validation:XValidation:rule="!('count/pods' in self)",message="must not limit count/pods, which counts ended pods too: use pods"
type ObjectLimits map[string]ObjectLimit

// ObjectLimit is a number of objects, from 0 to 1000000.
//
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=1000000
type ObjectLimit int64

// DefaultObjectLimits are the limits of a project whose department does not set them, far above the needs of ordinary
// projects: docs/platform/security.md says how much etcd a project can take. Custom resources have none: Kubernetes refuses
// those that a quota counts for five minutes after their kind was installed (--resource-quota-sync-period).
func DefaultObjectLimits() ObjectLimits {
	return ObjectLimits{
		"pods":                              500,
		"count/pods":                        2000,
		"services":                          100,
		"configmaps":                        100,
		"secrets":                           100,
		"persistentvolumeclaims":            100,
		"replicationcontrollers":            100,
		"count/jobs.batch":                  1000,
		"count/cronjobs.batch":              100,
		"count/deployments.apps":            100,
		"count/statefulsets.apps":           100,
		"count/replicasets.apps":            1000,
		"count/controllerrevisions.apps":    1000,
		"count/ingresses.networking.k8s.io": 100,
	}
}

// EffectiveObjectLimits returns the limits of a project: those of its department, or else the
// defaults, and its own where they are lower.
func EffectiveObjectLimits(project, department ObjectLimits) ObjectLimits {
	limits := DefaultObjectLimits()
	maps.Copy(limits, department)
	for name, limit := range project {
		if bound, ok := limits[name]; !ok || limit < bound {
			limits[name] = limit
		}
	}
	return limits
}

// Oversubscription sets whether a department may guarantee its projects more than it is
// guaranteed itself.
//
// +kubebuilder:validation:Enum=Deny;Allow
type Oversubscription string

// The rules for guarantees.
const (
	// OversubscriptionDeny rejects a project if the guarantees of all projects would exceed
	// the department's.
	OversubscriptionDeny Oversubscription = "Deny"
	// OversubscriptionAllow accepts such a project. The projects then cannot all use their
	// guarantees at the same time.
	OversubscriptionAllow Oversubscription = "Allow"
)

// PodSecurity is a level of the Kubernetes Pod Security Standards.
//
// +kubebuilder:validation:Enum=privileged;baseline;restricted
type PodSecurity string

// The levels, the loosest first.
const (
	PodSecurityPrivileged PodSecurity = "privileged"
	PodSecurityBaseline   PodSecurity = "baseline"
	PodSecurityRestricted PodSecurity = "restricted"
)

// PoolQuota is the GPU quota in one node pool.
type PoolQuota struct {
	// Name is the name of the NodePool.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=46
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// GPU is the quota of the pool's GPUs.
	//
	// +required
	GPU GPUQuota `json:"gpu"`
}

// MaxInUse returns the largest number of GPUs in use at the same time: the limit, or the
// guarantee if the weight is 0.
func (q GPUQuota) MaxInUse() resource.Quantity {
	if q.Weight() == 0 {
		return q.Guaranteed
	}
	return q.Limit
}

// Weight returns the over-quota weight, or its default if it is not set.
func (q GPUQuota) Weight() int32 {
	if q.OverQuotaWeight == nil {
		return 1
	}
	return *q.OverQuotaWeight
}

// GPUUsage is a GPU quota and its usage, in physical GPUs.
type GPUUsage struct {
	// Guaranteed is the number of guaranteed GPUs.
	//
	// +optional
	Guaranteed resource.Quantity `json:"guaranteed,omitempty"`

	// Limit is the largest number of GPUs in use at the same time.
	//
	// +optional
	Limit resource.Quantity `json:"limit,omitempty"`

	// Allocated is the GPU quota of pods that are bound to a node and have not ended. Pods
	// without a node count as pending, although the limit counts them, too.
	//
	// +optional
	Allocated resource.Quantity `json:"allocated,omitempty"`

	// OverQuota is the part of allocated that exceeds the guarantee. It is computed for each
	// node pool separately.
	//
	// +optional
	OverQuota resource.Quantity `json:"overQuota,omitempty"`

	// Pending is the GPU quota requested by work without a node: unscheduled pods, workloads
	// queued in Kueue, and pods rejected for lack of quota. It is no part of allocated.
	//
	// +optional
	Pending resource.Quantity `json:"pending,omitempty"`
}

// PoolUsage is the GPU quota and usage in one node pool.
type PoolUsage struct {
	// Name is the name of the NodePool.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=46
	Name string `json:"name"`

	GPUUsage `json:",inline"`

	// Unscheduled is the GPU quota of admitted pods that have no node. It is no part of allocated,
	// but the limit counts it. Departments do not have it.
	//
	// +optional
	Unscheduled resource.Quantity `json:"unscheduled,omitempty"`

	// Uncounted is the GPU quota of pods that are older than the quota. The enforced limit is
	// lowered by this amount until they end.
	//
	// +optional
	Uncounted resource.Quantity `json:"uncounted,omitempty"`
}

// SetOverQuota sets OverQuota of all and of each pool.
func SetOverQuota(all *GPUUsage, pools []PoolUsage) {
	sum := resource.NewMilliQuantity(0, resource.DecimalSI)
	for i := range pools {
		pools[i].OverQuota = pools[i].overGuaranteed()
		sum.Add(pools[i].OverQuota)
	}
	// The total may include pods that cannot be assigned to a pool.
	if all.OverQuota = all.overGuaranteed(); all.OverQuota.Cmp(*sum) < 0 {
		all.OverQuota = *sum
	}
}

// overGuaranteed returns the part of allocated that exceeds the guarantee.
func (u *GPUUsage) overGuaranteed() resource.Quantity {
	return *resource.NewMilliQuantity(max(0, u.Allocated.MilliValue()-u.Guaranteed.MilliValue()), resource.DecimalSI)
}

// maxSummarizedPools is the number of node pools that a summary names.
const maxSummarizedPools = 3

// SummarizePools returns the allocated GPUs and the limit of each pool, such as "dgx 9/8, mig
// 1/4", the pool closest to its limit first. Of more than three pools it names three, and the
// number of the others.
func SummarizePools(pools []PoolUsage) string {
	byUse := slices.Clone(pools)
	slices.SortStableFunc(byUse, func(a, b PoolUsage) int { return cmp.Compare(b.usedPart(), a.usedPart()) })
	named := make([]string, 0, maxSummarizedPools)
	for _, pool := range byUse[:min(len(byUse), maxSummarizedPools)] {
		named = append(named, fmt.Sprintf("%s %s/%s", pool.Name, pool.Allocated.String(), pool.Limit.String()))
	}
	summary := strings.Join(named, ", ")
	if more := len(byUse) - len(named); more > 0 {
		summary += fmt.Sprintf(", +%d", more)
	}
	return summary
}

// usedPart returns the part of the limit that is allocated: 1 at the limit.
func (u *GPUUsage) usedPart() float64 {
	allocated, limit := float64(u.Allocated.MilliValue()), float64(u.Limit.MilliValue())
	switch {
	case allocated <= 0:
		return 0
	case limit <= 0:
		return math.Inf(1)
	}
	return allocated / limit
}
