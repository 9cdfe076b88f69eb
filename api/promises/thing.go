// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package promises

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

// Thing is what can be promised: the GPUs of a node pool, CPU or memory.
type Thing struct {
	// Pool is the node pool whose GPUs it is; empty for CPU and memory.
	Pool string
	// Resource is cpu or memory; empty for GPUs.
	Resource corev1.ResourceName
}

// GPUsOf are the GPUs of the node pool.
func GPUsOf(pool string) Thing { return Thing{Pool: pool} }

// The things that are not a node pool's.
var (
	CPU    = Thing{Resource: corev1.ResourceCPU}
	Memory = Thing{Resource: corev1.ResourceMemory}
)

// String names it: "GPUs of node pool dgx", "CPU", "memory".
func (t Thing) String() string {
	switch t.Resource {
	case corev1.ResourceCPU:
		return "CPU"
	case corev1.ResourceMemory:
		return "memory"
	default:
		return "GPUs of node pool " + t.Pool
	}
}

// Amount is so much of it, in words: "2 GPUs", "64 cores", "512Gi of memory".
func (t Thing) Amount(of resource.Quantity) string {
	number := of.String()
	unit := " GPUs"
	switch t.Resource {
	case corev1.ResourceCPU:
		unit = " cores"
	case corev1.ResourceMemory:
		return number + " of memory"
	}
	if number == "1" {
		unit = unit[:len(unit)-1]
	}
	return number + unit
}

// In is what somebody with these quotas states for the thing: the guarantee of
// GPUs, the quota of CPU or memory; nil where nothing is stated.
func (t Thing) In(pools []v1alpha1.PoolQuota, resources v1alpha1.ResourceQuota) *resource.Quantity {
	switch t.Resource {
	case corev1.ResourceCPU:
		return resources.CPU
	case corev1.ResourceMemory:
		return resources.Memory
	}
	for i := range pools {
		if pools[i].Name == t.Pool {
			return &pools[i].GPU.Guaranteed
		}
	}
	return nil
}
