// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

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

// refusal is why a node does not run a pod.
type refusal struct{ Reason, Message string }

// said uses a kubelet's words for a pod that it has not admitted.
func (r refusal) said() string {
	if r.Reason == startFailed {
		return r.Message
	}
	return "Pod was rejected: " + r.Message
}

// decide returns the node's next state with the pod admitted, or why it is not.
// Others are the node's pods that are admitted and not over. The order is a
// kubelet's: devices first, then what else the node has too little of.
func decide(pod *corev1.Pod, others []*corev1.Pod, allocatable corev1.ResourceList, s devices.State) (devices.State, *refusal) {
	behaviour, err := behaviourOf(pod.Annotations)
	if err != nil {
		return s, &refusal{invalidSimulation, err.Error()}
	}
	next, err := s.Admit(devices.Pod{
		UID:       string(pod.UID),
		Namespace: pod.Namespace,
		Name:      pod.Name,
		ExitDelay: behaviour.exitDelay,
	}, demandsOf(pod))
	if err != nil {
		return s, &refusal{unexpectedAdmissionError, fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
	}
	if short := fit(pod, others, allocatable); short != nil {
		return s, &refusal{short.Reason(), short.Message()}
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

// mayStart reports whether a pod has been let past the gate already.
func mayStart(pod *corev1.Pod) bool {
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
