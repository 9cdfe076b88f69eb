// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// PendingClaim is a resource that a bound pod requests and the kubelet has not assigned completely.
type PendingClaim struct {
	Pod      v1alpha1.PodReference
	Resource corev1.ResourceName
}

// pendingClaims returns the pending claims of the node's pods. The caller reads the pods after the
// assignments, so that a pod that gets its device in between still counts with a claim.
func pendingClaims(pods []corev1.Pod, held Assignments) (list []PendingClaim) {
	for i := range pods {
		pod := &pods[i]
		if workload.IsPodTerminal(pod) {
			continue
		}
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		unclear := slices.Contains(held.Ambiguous, name)
		for resource, requested := range requestedDevices(pod) {
			if !isGPU(resource) && !held.hasResource(resource) {
				continue
			}
			if unclear || isUnknownToKubelet(pod) || held.Counts[name][resource] < requested {
				list = append(list, PendingClaim{Pod: podReference(pod), Resource: resource})
			}
		}
	}
	slices.SortFunc(list, func(a, b PendingClaim) int {
		return strings.Compare(string(a.Pod.UID)+string(a.Resource), string(b.Pod.UID)+string(b.Resource))
	})
	return list
}

// podsWithUnknownDRA returns pods with dynamically allocated devices that the kubelet does not
// report. They may be GPUs.
func podsWithUnknownDRA(pods []corev1.Pod, held Assignments) (names []types.NamespacedName) {
	for i := range pods {
		pod := &pods[i]
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		if !workload.IsPodTerminal(pod) && hasResourceClaims(pod) && (isUnknownToKubelet(pod) || !held.Dynamic[name]) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, compareNames)
	return names
}

func hasResourceClaims(pod *corev1.Pod) bool {
	some := func(c corev1.Container) bool { return len(c.Resources.Claims) > 0 }
	return slices.ContainsFunc(pod.Spec.Containers, some) || !isInitialized(pod) && slices.ContainsFunc(pod.Spec.InitContainers, some)
}

// isUnknownToKubelet reports whether the kubelet has yet to acknowledge the pod. Assignments under
// its name may belong to a former pod.
func isUnknownToKubelet(pod *corev1.Pod) bool { return pod.Status.StartTime == nil }

// requestedDevices returns the number of devices of each resource that the kubelet will report for
// the pod. It does not report those of an init container that is no sidecar, which the pod claims
// until it is initialized.
func requestedDevices(pod *corev1.Pod) map[corev1.ResourceName]int {
	requested := map[corev1.ResourceName]int{}
	add := func(c *corev1.Container) {
		for resource, quantity := range c.Resources.Limits {
			if strings.Contains(string(resource), "/") {
				requested[resource] += int(quantity.Value())
			}
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if sidecar || !isInitialized(pod) {
			add(c)
		}
	}
	for resource, count := range requested {
		if count <= 0 {
			delete(requested, resource)
		}
	}
	return requested
}

func isInitialized(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodInitialized && c.Status == corev1.ConditionTrue
	})
}

func podReference(pod *corev1.Pod) v1alpha1.PodReference {
	return v1alpha1.PodReference{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
}
