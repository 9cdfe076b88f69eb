// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// startCause is why a pod that holds GPUs or quota does not start.
type startCause string

const (
	causeGate          startCause = "SchedulingGate" // a scheduling gate of its author
	causeNoNode        startCause = "NoNode"         // a node that no pool has, even when it is empty
	causeNoRoom        startCause = "NoRoom"         // it would fit if pods of others ended
	causeNoInstance    startCause = "NoInstance"     // the same, and the pod requests MIG instances, which partitioning creates
	causeMissingObject startCause = "MissingObject"  // a Secret, ConfigMap or volume claim that does not exist
	causeImage         startCause = "Image"          // its image cannot be pulled
	causeStarting      startCause = "Starting"       // its node has not created its containers
)

// isOwnFault says for each cause whether the author of the workload has to mend it.
var isOwnFault = map[startCause]bool{
	causeGate: true, causeNoNode: true, causeMissingObject: true, causeImage: true,
	causeNoRoom: false, causeNoInstance: false, causeStarting: false,
}

// imageReasons are the kubelet's reasons of containers whose image cannot be pulled.
var imageReasons = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable",
	"ImageInspectError", "SignatureValidationFailed",
}

var (
	missingClaim = regexp.MustCompile(`persistentvolumeclaim "[^"]*" not found`)
	// noPreemptionHelps matches the message of kube-scheduler if no node would do without its pods.
	noPreemptionHelps = regexp.MustCompile(`preemption: 0/(\d+) nodes are available: (\d+) Preemption is not helpful for scheduling\.?$`)
	// noNodeFits matches what such a message says of nodes that lack what the pod asks for, even when they are empty.
	noNodeFits = regexp.MustCompile(`^0/\d+ nodes are available: ` +
		`(\d+ (node\(s\) didn't match Pod's node affinity/selector|Insufficient (cpu|memory|ephemeral-storage|hugepages-\w+))[,.] )+preemption:`)
)

// startCauseOf returns why a pod that has not started does not start, with the scheduler's or the kubelet's
// words, and the image for causeImage.
func startCauseOf(pod *corev1.Pod) (cause startCause, reason, image string) {
	if pod.Spec.NodeName == "" {
		if len(pod.Spec.SchedulingGates) > 0 {
			return causeGate, pod.Spec.SchedulingGates[0].Name, ""
		}
		message := ""
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				message = c.Message
			}
		}
		preemption := noPreemptionHelps.FindStringSubmatch(message)
		switch {
		case missingClaim.MatchString(message):
			return causeMissingObject, message, ""
		case preemption != nil && preemption[1] == preemption[2] && noNodeFits.MatchString(message):
			return causeNoNode, message, ""
		case slices.ContainsFunc(pod.Spec.Containers, requestsInstances):
			return causeNoInstance, message, ""
		}
		return causeNoRoom, message, ""
	}
	reason = "no container was created"
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting := status.State.Waiting
		if waiting == nil {
			continue
		}
		switch reason = waiting.Reason; {
		case slices.Contains(imageReasons, reason):
			return causeImage, reason, status.Image
		case reason == "CreateContainerConfigError":
			return causeMissingObject, reason, ""
		}
	}
	return causeStarting, reason, ""
}

func requestsInstances(container corev1.Container) bool {
	for name := range container.Resources.Limits {
		if strings.HasPrefix(string(name), v1alpha1.ResourceNVIDIAMIGPrefix) {
			return true
		}
	}
	return false
}
