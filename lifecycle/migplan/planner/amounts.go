// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"sluice.dev/api/v1alpha1"
)

// amounts holds resources of a pod or a node apart from GPUs and MIG instances. Schedulers report
// what is missing as sums over the cluster, so the planner compares them for each node itself.
type amounts struct {
	milliCPU, memory, storage, pods int64
	// extended holds all others, such as hugepages and sluice.dev/gpu-milli.
	extended map[corev1.ResourceName]int64
}

func newAmounts(list corev1.ResourceList) amounts {
	var a amounts
	for name, quantity := range list {
		switch name {
		case corev1.ResourceCPU:
			a.milliCPU = quantity.MilliValue()
		case corev1.ResourceMemory:
			a.memory = quantity.Value()
		case corev1.ResourceEphemeralStorage:
			a.storage = quantity.Value()
		case corev1.ResourcePods:
			a.pods = quantity.Value()
		case v1alpha1.ResourceNVIDIAGPU:
		default:
			if _, isMIG := v1alpha1.MIGProfileOf(name); isMIG || quantity.IsZero() {
				continue
			}
			if a.extended == nil {
				a.extended = map[corev1.ResourceName]int64{}
			}
			a.extended[name] = quantity.Value()
		}
	}
	return a
}

// podAmounts returns what a scheduler reserves for a pod.
func podAmounts(pod *corev1.Pod) amounts {
	a := newAmounts(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	a.pods = 1
	return a
}

// add adds the amounts of b to a.
func (a *amounts) add(b *amounts) {
	a.milliCPU += b.milliCPU
	a.memory += b.memory
	a.storage += b.storage
	a.pods += b.pods
	for name, amount := range b.extended {
		if a.extended == nil {
			a.extended = map[corev1.ResourceName]int64{}
		}
		a.extended[name] += amount
	}
}

// subtract removes the amounts of b from a.
func (a *amounts) subtract(b *amounts) {
	a.milliCPU -= b.milliCPU
	a.memory -= b.memory
	a.storage -= b.storage
	a.pods -= b.pods
	if len(b.extended) == 0 {
		return
	}
	a.extended = maps.Clone(a.extended)
	for name, amount := range b.extended {
		if _, has := a.extended[name]; has {
			a.extended[name] -= amount
		}
	}
}

func (a amounts) differs(b amounts) bool {
	return a.milliCPU != b.milliCPU || a.memory != b.memory || a.storage != b.storage || a.pods != b.pods || !maps.Equal(a.extended, b.extended)
}

// missing returns a resource of which less is free than a requests; empty if the request fits.
func (a *amounts) missing(free *amounts) corev1.ResourceName {
	switch {
	case a.milliCPU > 0 && a.milliCPU > free.milliCPU:
		return corev1.ResourceCPU
	case a.memory > 0 && a.memory > free.memory:
		return corev1.ResourceMemory
	case a.storage > 0 && a.storage > free.storage:
		return corev1.ResourceEphemeralStorage
	case a.pods > free.pods:
		return corev1.ResourcePods
	}
	for name, amount := range a.extended {
		if amount > free.extended[name] {
			return name
		}
	}
	return ""
}
