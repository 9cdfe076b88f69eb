// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
)

// podSecurityLabels have the level: the first refuses pods, the second warns the authors
// of the workloads that create pods.
var podSecurityLabels = []string{v1alpha1.LabelPodSecurityEnforce, "pod-security.kubernetes.io/warn"}

// setPodSecurity sets the labels to the level. Existing pods keep running. A stricter
// label of another manager stays: the namespace was adopted with it.
func setPodSecurity(namespace *corev1.Namespace, level v1alpha1.PodSecurity) {
	for _, label := range podSecurityLabels {
		present := v1alpha1.PodSecurity(namespace.Labels[label])
		if isStricter(present, level) && !isLabelManagedByLifecycle(namespace, label) {
			continue
		}
		namespace.Labels[label] = string(level)
	}
}

// removePodSecurity removes the labels that lifecycle wrote.
func removePodSecurity(namespace *corev1.Namespace) {
	for _, label := range podSecurityLabels {
		if isLabelManagedByLifecycle(namespace, label) {
			delete(namespace.Labels, label)
		}
	}
}

// podSecurityLevels are the levels, the strictest last. Another value, or none, refuses
// nothing.
var podSecurityLevels = []v1alpha1.PodSecurity{v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted}

func isStricter(a, b v1alpha1.PodSecurity) bool {
	return slices.Index(podSecurityLevels, a) > slices.Index(podSecurityLevels, b)
}

// hasStricterPodSecurity reports whether a label is stricter than the level.
func hasStricterPodSecurity(namespace *corev1.Namespace, level v1alpha1.PodSecurity) bool {
	return slices.ContainsFunc(podSecurityLabels, func(label string) bool {
		return isStricter(v1alpha1.PodSecurity(namespace.Labels[label]), level)
	})
}

// isLabelManagedByLifecycle reports whether lifecycle wrote the label last. The namespace
// must come from the API server, with managed fields.
func isLabelManagedByLifecycle(namespace *corev1.Namespace, label string) bool {
	for _, entry := range namespace.ManagedFields {
		if entry.Manager != v1alpha1.FieldManagerLifecycle || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Labels map[string]json.RawMessage `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, wrote := fields.Metadata.Labels["f:"+label]; wrote {
			return true
		}
	}
	return false
}

// setQueuedLabel sets LabelQueued on a namespace if the scheduler of one of the project's
// pools queues workloads before they have pods. By this label the API server refuses
// workloads that would not be counted.
func setQueuedLabel(namespace *corev1.Namespace, pools []input.NodePool) {
	if slices.ContainsFunc(pools, func(pool input.NodePool) bool { return pool.Scheduler == v1alpha1.SchedulerKueue }) {
		namespace.Labels[v1alpha1.LabelQueued] = "true"
	} else {
		delete(namespace.Labels, v1alpha1.LabelQueued)
	}
}
