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

	"sluice.dev/test/cluster/fakekubelet/deviceplugin"
	"sluice.dev/test/cluster/fakekubelet/devices"
)

const (
	unexpectedAdmissionError = "UnexpectedAdmissionError"
	// invalidSimulation is the reason for a pod whose annotations for the
	// simulation cannot be read: running it some other way would be guessing.
	invalidSimulation = "InvalidSimulation"
	// startFailed is the reason for a pod that was admitted and whose containers
	// cannot be started.
	startFailed = "StartError"
)

// rejection is why a node does not run a pod.
type rejection struct{ Reason, Message string }

// message uses a kubelet's words for a pod that it has not admitted.
func (r rejection) message() string {
	if r.Reason == startFailed {
		return r.Message
	}
	return "Pod was rejected: " + r.Message
}

// evaluateAdmission returns the node's next state with the pod admitted, or why it is not.
// Others are the node's pods that are admitted and not over. The order is a
// kubelet's: devices first, then what else the node has too little of.
func evaluateAdmission(pod *corev1.Pod, others []*corev1.Pod, allocatable corev1.ResourceList, s devices.State) (devices.State, *rejection) {
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
	if short := checkFit(pod, others, allocatable); short != nil {
		return s, &rejection{short.Reason(), short.Message()}
	}
	return next, nil
}

// isRemovable reports whether a pod was deleted, runs nothing and is kept by
// nobody. A pod without a grace period is the API server's to remove. One that is
// Pending never ran: kwok starts no pod that was deleted.
func isRemovable(pod *corev1.Pod) bool {
	forced := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	return pod.DeletionTimestamp != nil && !forced && len(pod.Finalizers) == 0 && pod.Status.Phase != corev1.PodRunning
}

// canStart reports whether a pod has been let past the gate already.
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

// insufficientResource is a resource of which a node has too little for one more pod.
type insufficientResource struct {
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

// Reason uses the kubelet's word.
func (s insufficientResource) Reason() string { return "OutOf" + string(s.Resource) }

// Message uses the kubelet's words.
func (s insufficientResource) Message() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		s.Resource, s.Requested, s.Used, s.Capacity)
}

// checkFit returns the first resource of which pod asks for more than others leave of
// allocatable, or nil. An extended resource that the node does not have at all
// is nobody's here, and devices have been given already, as with a kubelet.
func checkFit(pod *corev1.Pod, others []*corev1.Pod, allocatable corev1.ResourceList) *insufficientResource {
	if pods, known := allocatable[corev1.ResourcePods]; known && int64(len(others)) >= pods.Value() {
		return &insufficientResource{corev1.ResourcePods, 1, int64(len(others)), pods.Value()}
	}
	requested, used, capacity := totalRequests(pod), totalRequests(others...), scaledQuantities(allocatable)
	for _, name := range sortedForFit(requested) {
		if _, known := capacity[name]; requested[name] == 0 || !known && isExtended(name) || deviceplugin.IsResource(string(name)) {
			continue
		}
		if requested[name] > capacity[name]-used[name] {
			return &insufficientResource{name, requested[name], used[name], capacity[name]}
		}
	}
	return nil
}

// totalRequests returns what the API server counts for the pods together.
func totalRequests(pods ...*corev1.Pod) map[corev1.ResourceName]int64 {
	sum := map[corev1.ResourceName]int64{}
	for _, pod := range pods {
		for name, n := range scaledQuantities(resource.PodRequests(pod, resource.PodResourcesOptions{})) {
			sum[name] += n
		}
	}
	return sum
}

// scaledQuantities are in the units of the scheduler: thousandths for the CPU, whole
// units for all else.
func scaledQuantities(list corev1.ResourceList) map[corev1.ResourceName]int64 {
	amounts := make(map[corev1.ResourceName]int64, len(list))
	for name, quantity := range list {
		amounts[name] = quantity.Value()
		if name == corev1.ResourceCPU {
			amounts[name] = quantity.MilliValue()
		}
	}
	return amounts
}

// sortedForFit returns the names in the order in which the scheduler looks at them.
func sortedForFit(amounts map[corev1.ResourceName]int64) []corev1.ResourceName {
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

// podDemands returns what a pod's containers ask of NVIDIA's plugin, in the order
// in which a kubelet serves them. Limits count: of an extended resource the
// request is the same.
func podDemands(pod *corev1.Pod) []devices.Demand {
	var demands []devices.Demand
	add := func(container corev1.Container, kind devices.Kind) {
		amounts := map[string]int64{}
		for name, quantity := range container.Resources.Limits {
			if deviceplugin.IsResource(string(name)) && !quantity.IsZero() {
				amounts[string(name)] = quantity.Value()
			}
		}
		if len(amounts) > 0 {
			demands = append(demands, devices.Demand{Container: container.Name, Kind: kind, Amounts: amounts})
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
