// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// charge is how much of the currency an admitted pod has, as quotas count it: the
// containers that run side by side together, or the largest of those that run
// before them if that is more. A pod that was not admitted has none, whatever is
// written on it.
func charge(pod *corev1.Pod) workload.Milli {
	if pod.Labels[v1alpha1.LabelProject] == "" {
		return 0
	}
	var together, before, beside int64
	for i := range pod.Spec.Containers {
		together = plus(together, currency(&pod.Spec.Containers[i]))
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		amount := currency(c)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			beside = plus(beside, amount)
			amount = 0
		}
		before = max(before, plus(beside, amount))
	}
	return workload.Milli(max(plus(together, beside), before))
}

// currency is how much of it one container has.
func currency(c *corev1.Container) int64 {
	sum := int64(0)
	for name, quantity := range c.Resources.Requests {
		if name == v1alpha1.ResourceGPUMilli || strings.HasPrefix(string(name), string(v1alpha1.ResourceGPUMilli)+".") {
			sum = plus(sum, max(0, quantity.Value()))
		}
	}
	return sum
}

// plus adds two amounts of at least 0 and stops at the most that there can be.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
