// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/test/cluster/fakekubelet/devices"
	"sluice.dev/test/cluster/fakekubelet/plugin"
)

// demandsOf returns what a pod's containers ask of NVIDIA's plugin, in the order
// in which a kubelet serves them. Limits count: of an extended resource the
// request is the same.
func demandsOf(pod *corev1.Pod) []devices.Demand {
	var demands []devices.Demand
	add := func(container corev1.Container, kind devices.Kind) {
		amounts := map[string]int64{}
		for name, quantity := range container.Resources.Limits {
			if plugin.IsResource(string(name)) && !quantity.IsZero() {
				amounts[string(name)] = quantity.Value()
			}
		}
		if len(amounts) > 0 {
			demands = append(demands, devices.Demand{Container: container.Name, Kind: kind, Amounts: amounts})
		}
	}
	for _, container := range pod.Spec.InitContainers {
		if isSidecar(container) {
			add(container, devices.Lasting)
		} else {
			add(container, devices.Init)
		}
	}
	for _, container := range pod.Spec.Containers {
		add(container, devices.Lasting)
	}
	return demands
}

func isSidecar(initContainer corev1.Container) bool {
	return initContainer.RestartPolicy != nil && *initContainer.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
