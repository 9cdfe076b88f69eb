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

	"sluice.dev/api/workload"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

const (
	unexpectedAdmissionError = "UnexpectedAdmissionError"
	// invalidSimulation is the reason for a pod with invalid annotations for the
	// simulation, which does not run.
	invalidSimulation = "InvalidSimulation"
	// startFailed is the reason for an admitted pod whose containers cannot be started.
	startFailed = "StartError"
)

// rejection is the reason why a node does not run a pod.
type rejection struct{ Reason, Message string }

// message returns the kubelet's message for a pod that it has not admitted.
func (r rejection) message() string {
	if r.Reason == startFailed {
		return r.Message
	}
	return "Pod was rejected: " + r.Message
}

// evaluateAdmission returns the node's next state with the pod admitted, or the reason for
// its rejection. others are the admitted pods of the node that have not ended. As in a
// kubelet, the check for devices precedes the check for other resources.
func evaluateAdmission(
	pod *corev1.Pod, others []*corev1.Pod, allocatable corev1.ResourceList, s devices.State,
) (devices.State, *rejection) {
	behavior, err := parsePodBehavior(pod.Annotations)
	if err != nil {
		return s, &rejection{invalidSimulation, err.Error()}
	}
	next, err := s.Admit(devices.Pod{
		UID:       string(pod.UID),
		Namespace: pod.Namespace,
		Name:      pod.Name,
		ExitDelay: behavior.exitDelay,
	}, podDemands(pod))
	if err != nil {
		return s, &rejection{unexpectedAdmissionError, fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
	}
	if insufficient := checkFit(pod, others, allocatable); insufficient != nil {
		return s, &rejection{insufficient.Reason(), insufficient.Message()}
	}
	return next, nil
}

// isRemovable reports whether a pod was deleted, has ended and has no finalizers. The API
// server itself removes a pod without a grace period. As with a kubelet, a pod that never ran
// ends first: only of an ended pod does every cluster allow the removal.
func isRemovable(pod *corev1.Pod) bool {
	forced := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	return pod.DeletionTimestamp != nil && !forced && len(pod.Finalizers) == 0 && workload.IsPodTerminal(pod)
}

// canStart reports whether the pod has the condition for kwok to start it, or runs already.
func canStart(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodRunning {
		return true
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReadyToStartContainers {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// insufficientResource describes a resource that a node lacks for one more pod.
type insufficientResource struct {
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

// Reason returns the kubelet's reason.
func (s insufficientResource) Reason() string { return "OutOf" + string(s.Resource) }

// Message returns the kubelet's message.
func (s insufficientResource) Message() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		s.Resource, s.Requested, s.Used, s.Capacity)
}

// checkFit returns the first resource of which pod requests more than others leave of
// allocatable, or nil. As a kubelet does, it ignores extended resources that the node does
// not have, and devices, which were assigned before.
func checkFit(pod *corev1.Pod, others []*corev1.Pod, allocatable corev1.ResourceList) *insufficientResource {
	if pods, known := allocatable[corev1.ResourcePods]; known && int64(len(others)) >= pods.Value() {
		return &insufficientResource{corev1.ResourcePods, 1, int64(len(others)), pods.Value()}
	}
	requested, used, capacity := totalRequests(pod), totalRequests(others...), scaledQuantities(allocatable)
	for _, name := range sortedForFit(requested) {
		if _, known := capacity[name]; requested[name] == 0 || !known && isExtended(name) || devices.IsResource(string(name)) {
			continue
		}
		if requested[name] > capacity[name]-used[name] {
			return &insufficientResource{name, requested[name], used[name], capacity[name]}
		}
	}
	return nil
}

// totalRequests returns the sum of the pods' requests as the API server counts them.
func totalRequests(pods ...*corev1.Pod) map[corev1.ResourceName]int64 {
	sum := map[corev1.ResourceName]int64{}
	for _, pod := range pods {
		for name, n := range scaledQuantities(resource.PodRequests(pod, resource.PodResourcesOptions{})) {
			sum[name] += n
		}
	}
	return sum
}

// scaledQuantities returns the quantities in the units of the scheduler: thousandths of a
// CPU, and whole units of all other resources.
func scaledQuantities(list corev1.ResourceList) map[corev1.ResourceName]int64 {
	quantities := make(map[corev1.ResourceName]int64, len(list))
	for name, quantity := range list {
		quantities[name] = quantity.Value()
		if name == corev1.ResourceCPU {
			quantities[name] = quantity.MilliValue()
		}
	}
	return quantities
}

// sortedForFit returns the names in the order in which the scheduler checks them.
func sortedForFit(quantities map[corev1.ResourceName]int64) []corev1.ResourceName {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(quantities)), func(name corev1.ResourceName) bool {
		return slices.Contains(first, name)
	})
	return append(first, rest...)
}

// isExtended reports whether a resource is not one of Kubernetes' own.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/")
}

// podDemands returns the devices that a pod's containers request from NVIDIA's plugin, in
// the order in which a kubelet assigns them. It reads limits: the request of an extended
// resource equals its limit.
func podDemands(pod *corev1.Pod) []devices.Demand {
	var demands []devices.Demand
	add := func(container corev1.Container, kind devices.Kind) {
		quantities := map[string]int64{}
		for name, quantity := range container.Resources.Limits {
			if devices.IsResource(string(name)) && !quantity.IsZero() {
				quantities[string(name)] = quantity.Value()
			}
		}
		if len(quantities) > 0 {
			demands = append(demands, devices.Demand{Container: container.Name, Kind: kind, Amounts: quantities})
		}
	}
	for _, container := range pod.Spec.InitContainers {
		if isSidecar(container) {
			add(container, devices.LongRunning)
		} else {
			add(container, devices.Init)
		}
	}
	for _, container := range pod.Spec.Containers {
		add(container, devices.LongRunning)
	}
	return demands
}

func isSidecar(initContainer corev1.Container) bool {
	return initContainer.RestartPolicy != nil && *initContainer.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
