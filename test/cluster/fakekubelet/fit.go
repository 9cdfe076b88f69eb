// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"sluice.dev/test/cluster/fakekubelet/plugin"
)

// shortage is a resource of which a node has too little for one more pod.
type shortage struct {
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

// Reason uses the kubelet's word.
func (s shortage) Reason() string { return "OutOf" + string(s.Resource) }

// Message uses the kubelet's words.
func (s shortage) Message() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		s.Resource, s.Requested, s.Used, s.Capacity)
}

// fit returns the first resource of which pod asks for more than others leave of
// allocatable, or nil. An extended resource that the node does not have at all
// is nobody's here, and devices have been given already, as with a kubelet.
func fit(pod *corev1.Pod, others []*corev1.Pod, allocatable corev1.ResourceList) *shortage {
	if pods, known := allocatable[corev1.ResourcePods]; known && int64(len(others)) >= pods.Value() {
		return &shortage{corev1.ResourcePods, 1, int64(len(others)), pods.Value()}
	}
	requested, used, capacity := requests(pod), requests(others...), amounts(allocatable)
	for _, name := range inFitOrder(requested) {
		if _, known := capacity[name]; requested[name] == 0 || !known && isExtended(name) || plugin.IsResource(string(name)) {
			continue
		}
		if requested[name] > capacity[name]-used[name] {
			return &shortage{name, requested[name], used[name], capacity[name]}
		}
	}
	return nil
}

// requests returns what the API server counts for the pods together.
func requests(pods ...*corev1.Pod) map[corev1.ResourceName]int64 {
	sum := map[corev1.ResourceName]int64{}
	for _, pod := range pods {
		for name, n := range amounts(resource.PodRequests(pod, resource.PodResourcesOptions{})) {
			sum[name] += n
		}
	}
	return sum
}

// amounts are in the units of the scheduler: thousandths for the CPU, whole
// units for all else.
func amounts(list corev1.ResourceList) map[corev1.ResourceName]int64 {
	amounts := make(map[corev1.ResourceName]int64, len(list))
	for name, quantity := range list {
		amounts[name] = quantity.Value()
		if name == corev1.ResourceCPU {
			amounts[name] = quantity.MilliValue()
		}
	}
	return amounts
}

// inFitOrder returns the names in the order in which the scheduler looks at them.
func inFitOrder(amounts map[corev1.ResourceName]int64) []corev1.ResourceName {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(amounts)), func(name corev1.ResourceName) bool {
		return slices.Contains(first, name)
	})
	return append(first, rest...)
}

// isExtended reports whether a resource is none of Kubernetes' own.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/")
}
