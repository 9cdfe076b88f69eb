// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import corev1 "k8s.io/api/core/v1"

// Ended tells that a pod runs nothing any more and never will: it has no claim on
// anything. One that is being deleted may still run.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
