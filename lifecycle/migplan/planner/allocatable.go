// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// deviceCounts counts devices by resource.
type deviceCounts map[corev1.ResourceName]int64

// countDevices adds a GPU to minAllocatable and maxAllocatable.
func (m *observedNode) countDevices(observed *v1alpha1.ObservedGPU) {
	healthy := observed.Health == "" || observed.Health == v1alpha1.GPUHealthy
	if observed.MIG.Current != v1alpha1.MIGModeEnabled {
		m.maxAllocatable[v1alpha1.ResourceNVIDIAGPU]++
		return
	}
	for i := range observed.Instances {
		resource := v1alpha1.ResourceMIG(observed.Instances[i].Profile)
		m.maxAllocatable[resource]++
		switch observed.Instances[i].State {
		case v1alpha1.InstanceCreating, v1alpha1.InstanceDestroying, v1alpha1.InstanceError:
		default:
			if healthy && observed.Instances[i].UUID != "" {
				m.minAllocatable[resource]++
			}
		}
	}
}

// matchesAllocatable reports whether the node's allocatable matches the layout. It may have
// fewer whole GPUs, never more.
func (m *observedNode) matchesAllocatable(published deviceCounts) bool {
	published = m.translateAllocatable(published)
	for resource, minimum := range m.minAllocatable {
		if published[resource] < minimum {
			return false
		}
	}
	return !m.isExceededBy(published)
}

// translateAllocatable renames published profiles to the agent's names; a device plugin may
// round their memory differently.
func (m *observedNode) translateAllocatable(published deviceCounts) deviceCounts {
	counts := make(deviceCounts, len(published))
	for resource, number := range published {
		counts[m.translateResource(resource)] += number
	}
	return counts
}

func (m *observedNode) translateResource(resource corev1.ResourceName) corev1.ResourceName {
	profile, isMIG := v1alpha1.MIGProfileOf(resource)
	if _, known := m.maxAllocatable[resource]; known || !isMIG {
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
	within := true
	for resource, number := range published {
		limit, known := m.maxAllocatable[resource]
		within = within && (number == 0 || known && number <= limit)
	}
	if within {
		return false // without a translation of names
	}
	for resource, number := range m.translateAllocatable(published) {
		if number > m.maxAllocatable[resource] {
			return true
		}
	}
	return false
}

// allocatableDevices counts the GPUs and MIG instances in a node's allocatable.
func allocatableDevices(object *corev1.Node) deviceCounts {
	result := deviceCounts{}
	for name, quantity := range object.Status.Allocatable {
		if _, ok := v1alpha1.MIGProfileOf(name); ok || name == v1alpha1.ResourceNVIDIAGPU {
			result[name] = quantity.Value()
		}
	}
	return result
}
