// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"sluice.dev/api/v1alpha1"
)

// nodeRequests returns what a scheduler reserves for the pod of the resources of
// [v1alpha1.IsNodeResource], without zeros, sorted by name.
//
// In a template the API server has not yet copied limits to the requests that are not set, so they are
// copied here, as for pods.
func nodeRequests(spec *corev1.PodSpec) Amounts {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: withDefaultRequests(spec.Containers), InitContainers: withDefaultRequests(spec.InitContainers),
		Resources: spec.Resources, Overhead: spec.Overhead,
	}}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if spec.Resources != nil {
		for name, limit := range spec.Resources.Limits {
			if _, ok := requests[name]; !ok {
				requests[name] = limit
			}
		}
	}
	amounts := Amounts{}
	for name, quantity := range requests {
		if count := NodeResourceAmount(name, quantity); v1alpha1.IsNodeResource(name) && count > 0 {
			amounts = append(amounts, Amount{Name: string(name), Count: count})
		}
	}
	slices.SortFunc(amounts, func(a, b Amount) int { return strings.Compare(a.Name, b.Name) })
	return amounts
}

// withDefaultRequests returns the containers with what their requests depend on alone.
func withDefaultRequests(containers []corev1.Container) []corev1.Container {
	result := make([]corev1.Container, len(containers))
	for i := range containers {
		from := &containers[i]
		requests := make(corev1.ResourceList, len(from.Resources.Limits))
		for _, list := range []corev1.ResourceList{from.Resources.Limits, from.Resources.Requests} {
			for name, quantity := range list {
				if v1alpha1.IsNodeResource(name) {
					requests[name] = quantity
				}
			}
		}
		result[i] = corev1.Container{RestartPolicy: from.RestartPolicy, Resources: corev1.ResourceRequirements{Requests: requests}}
	}
	return result
}

// NodeResourceAmount returns a quantity in the unit of Request.Requests: thousandths of a CPU, rounded up, or
// bytes. What is beyond an int64 is the largest one.
func NodeResourceAmount(name corev1.ResourceName, quantity resource.Quantity) int64 {
	perUnit := int64(1)
	if name == corev1.ResourceCPU {
		perUnit = 1000
	}
	switch {
	case quantity.CmpInt64(math.MaxInt64/perUnit) >= 0:
		return math.MaxInt64
	case perUnit == 1:
		return quantity.Value()
	default:
		return quantity.MilliValue()
	}
}
