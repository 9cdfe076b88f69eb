// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
)

// startCause is why a pod that holds GPUs or quota does not start.
type startCause string

const (
	causeGate          startCause = "SchedulingGate" // a scheduling gate of its author
	causeNoNode        startCause = "NoNode"         // a node that its pool does not have, even when it is empty
	causeNoRoom        startCause = "NoRoom"         // it would fit if pods of others ended
	causeNoInstance    startCause = "NoInstance"     // the same, and the pod requests MIG instances, which partitioning creates
	causeMissingObject startCause = "MissingObject"  // a Secret, ConfigMap or volume claim that does not exist, or a claim without a volume
	causeImage         startCause = "Image"          // its image cannot be pulled
	causeStarting      startCause = "Starting"       // its node, which is ready, has not created its containers: a volume is missing
)

// isOwnFault says for each cause whether the author of the workload has to mend it.
var isOwnFault = map[startCause]bool{
	causeGate: true, causeNoNode: true, causeMissingObject: true, causeImage: true, causeStarting: true,
	causeNoRoom: false, causeNoInstance: false,
}

// imageReasons are the kubelet's reasons of containers whose image cannot be pulled.
var imageReasons = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable",
	"ImageInspectError", "SignatureValidationFailed",
}

var (
	missingClaim = regexp.MustCompile(`persistentvolumeclaim "[^"]*" (not found|is being deleted)|unbound immediate PersistentVolumeClaims`)
	// noPreemptionHelps matches the message of kube-scheduler if no node would do without its pods.
	noPreemptionHelps = regexp.MustCompile(`preemption: 0/(\d+) nodes are available: (\d+) Preemption is not helpful for scheduling\.?$`)
	// noNodeFits matches what such a message says of nodes that lack what the pod asks for, even when they are empty.
	// Of other plugins, one of devices says before it that it has "no new claims to deallocate".
	noNodeFits = regexp.MustCompile(`^0/\d+ nodes are available: ` +
		`(\d+ (node\(s\) (didn't match (Pod's node affinity/selector|pod affinity rules)|had untolerated taint(\(s\)| {[^}]*}))|` +
		`Insufficient (cpu|memory|ephemeral-storage|hugepages-\w+))[,.] )+([a-z ]+, )?preemption:`)
)

// startCauseOf returns why a pod that has not started does not start, with the scheduler's or the kubelet's
// words, and the image for causeImage. The nodes are those of its pool: their taints may go, those of others do not matter.
func startCauseOf(pod *corev1.Pod, nodes []corev1.Node) (cause startCause, reason, image string) {
	if pod.Spec.NodeName == "" {
		if len(pod.Spec.SchedulingGates) > 0 {
			return causeGate, pod.Spec.SchedulingGates[0].Name, ""
		}
		message := podcache.ScheduledCondition(pod).Message
		preemption := noPreemptionHelps.FindStringSubmatch(message)
		isTainted := slices.ContainsFunc(nodes, func(node corev1.Node) bool {
			_, tainted := helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, nil, false)
			fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(&node)
			return tainted && fits && err == nil
		})
		switch {
		case missingClaim.MatchString(message):
			return causeMissingObject, message, ""
		case preemption != nil && preemption[1] == preemption[2] && noNodeFits.MatchString(message) && !isTainted:
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
	return slices.ContainsFunc(slices.Collect(maps.Keys(container.Resources.Limits)), func(name corev1.ResourceName) bool {
		return strings.HasPrefix(string(name), v1alpha1.ResourceNVIDIAMIGPrefix)
	})
}
