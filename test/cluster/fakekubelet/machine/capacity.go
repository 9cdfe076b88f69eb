// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/test/cluster/fakekubelet/devices"
)

const (
	maxPods = 110 // a kubelet's default
	// evictionMiB is what a kubelet keeps back of the memory by default, so that
	// it can evict pods before the kernel kills something.
	evictionMiB = 100
)

// Capacity returns what a kubelet with these devices would report as the node's
// capacity.
func (m Machine) Capacity(s devices.State) corev1.ResourceList {
	return m.resources(s, 0)
}

// Allocatable is Capacity less what a kubelet keeps for itself by default.
func (m Machine) Allocatable(s devices.State) corev1.ResourceList {
	return m.resources(s, evictionMiB)
}

func (m Machine) resources(s devices.State, reservedMiB int64) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(m.CPUs, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(m.HostMemoryGiB<<30-reservedMiB<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.DiskGiB<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	for name, count := range s.Capacity() {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	}
	return list
}
