// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// deviceCounts counts devices by resource, sorted. A node has few resources, and each decision reads the
// counts of all nodes, which is faster from a list than from a map.
type deviceCounts []deviceCount

type deviceCount struct {
	resource corev1.ResourceName
	number   int64
}

// add adds devices of a resource.
func (c *deviceCounts) add(resource corev1.ResourceName, number int64) {
	at, found := slices.BinarySearchFunc(*c, resource, func(d deviceCount, name corev1.ResourceName) int {
		return strings.Compare(string(d.resource), string(name))
	})
	if !found {
		*c = slices.Insert(*c, at, deviceCount{resource: resource})
	}
	(*c)[at].number += number
}

// get returns the number of devices of a resource, and whether it is listed.
func (c deviceCounts) get(resource corev1.ResourceName) (number int64, known bool) {
	for _, d := range c {
		if d.resource == resource {
			return d.number, true
		}
	}
	return 0, false
}

// countDevices adds a GPU to minAllocatable and maxAllocatable.
func (m *observedNode) countDevices(observed *v1alpha1.ObservedGPU) {
	healthy := observed.Health == "" || observed.Health == v1alpha1.GPUHealthy
	if observed.MIG.Current != v1alpha1.MIGModeEnabled {
		m.maxAllocatable.add(v1alpha1.ResourceNVIDIAGPU, 1)
		return
	}
	for i := range observed.Instances {
		resource := v1alpha1.ResourceMIG(observed.Instances[i].Profile)
		m.maxAllocatable.add(resource, 1)
		switch observed.Instances[i].State {
		case v1alpha1.InstanceCreating, v1alpha1.InstanceDestroying, v1alpha1.InstanceError:
		default:
			if healthy && observed.Instances[i].UUID != "" {
				m.minAllocatable.add(resource, 1)
			}
		}
	}
}

// matchesAllocatable reports whether the node's allocatable matches the layout. It may have
// fewer whole GPUs, never more.
func (m *observedNode) matchesAllocatable(published deviceCounts) bool {
	published = m.translateAllocatable(published)
	for _, minimum := range m.minAllocatable {
		if number, _ := published.get(minimum.resource); number < minimum.number {
			return false
		}
	}
	return !m.isExceededBy(published)
}

// translateAllocatable renames published profiles to the agent's names; a device plugin may
// round their memory differently.
func (m *observedNode) translateAllocatable(published deviceCounts) deviceCounts {
	counts := make(deviceCounts, 0, len(published))
	for _, d := range published {
		counts.add(m.translateResource(d.resource), d.number)
	}
	return counts
}

func (m *observedNode) translateResource(resource corev1.ResourceName) corev1.ResourceName {
	profile, isMIG := v1alpha1.MIGProfileOf(resource)
	if _, known := m.maxAllocatable.get(resource); known || !isMIG {
		return resource
	}
	for i := range m.gpus {
		if k := m.gpus[i].model; k != nil {
			if p := k.resolveProfile(profile); p != nil {
				return v1alpha1.ResourceMIG(k.driverName(p))
			}
		}
	}
	return resource
}

// isExceededBy reports whether the node's allocatable has devices that do not exist.
func (m *observedNode) isExceededBy(published deviceCounts) bool {
	// Most nodes need no translation of names.
	return m.exceedsMaximum(published) && m.exceedsMaximum(m.translateAllocatable(published))
}

func (m *observedNode) exceedsMaximum(published deviceCounts) bool {
	return slices.ContainsFunc(published, func(d deviceCount) bool {
		limit, _ := m.maxAllocatable.get(d.resource)
		return d.number > limit
	})
}

// allocatableDevices counts the GPUs and MIG instances in a node's allocatable.
func allocatableDevices(object *corev1.Node) deviceCounts {
	var result deviceCounts
	for name, quantity := range object.Status.Allocatable {
		if _, ok := v1alpha1.MIGProfileOf(name); ok || name == v1alpha1.ResourceNVIDIAGPU {
			result.add(name, quantity.Value())
		}
	}
	return result
}
