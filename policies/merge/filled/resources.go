// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/resource"

	"sluice.dev/policies/merge/value"
)

// requests of a container are its limits where it has none; a LimitRange may
// give others.
func requests(_ Cluster, at Place, v any) bool {
	limit, limited := value.Map(at.Parent["limits"])[at.Entry]
	switch {
	case at.Container == nil:
		return podRequest(at, limit, limited, v)
	case limited && value.SameQuantity(limit, v):
		return at.List != "ephemeralContainers"
	}
	return fromLimitRange(at, "request")
}

func limits(_ Cluster, at Place, v any) bool {
	if at.Container == nil {
		return podLimit(at, v)
	}
	return fromLimitRange(at, "limit")
}

// podRequest is about the pod's own resources: what its containers ask for
// together, else the pod's limit.
func podRequest(at Place, limit any, limited bool, v any) bool {
	name := corev1.ResourceName(at.Entry)
	if len(value.Map(at.Parent["limits"])) == 0 || !resource.IsSupportedPodLevelResource(name) {
		return false
	}
	total, asked := resource.AggregateContainerRequests(ofContainers(at), resource.PodResourcesOptions{})[name]
	if asked && !hugePages(at.Entry) {
		return value.SameQuantity(total.String(), v)
	}
	return limited && value.SameQuantity(limit, v)
}

// podLimit of huge pages is what the pod's containers may use together.
func podLimit(at Place, v any) bool {
	if !hugePages(at.Entry) {
		return false
	}
	total, limited := resource.AggregateContainerLimits(ofContainers(at), resource.PodResourcesOptions{})[corev1.ResourceName(at.Entry)]
	return limited && value.SameQuantity(total.String(), v)
}

func hugePages(name string) bool { return strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) }

// ofContainers is a pod with as much as its resources are summed from, and an
// empty one where that cannot be read.
func ofContainers(at Place) *corev1.Pod {
	spec := map[string]any{}
	for _, list := range []string{"containers", "initContainers"} {
		var reduced []any
		for _, container := range value.List(at.spec()[list]) {
			part := map[string]any{}
			for _, name := range []string{"name", "resources", "restartPolicy"} {
				if v, ok := value.Map(container)[name]; ok {
					part[name] = v
				}
			}
			reduced = append(reduced, part)
		}
		spec[list] = reduced
	}
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": spec}, &pod); err != nil {
		return &corev1.Pod{}
	}
	return &pod
}
