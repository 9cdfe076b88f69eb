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

// podSecurityLabels are held to the level: by the first pods are refused, by the
// second the authors of what makes pods are warned, who would not hear of that.
var podSecurityLabels = []string{v1alpha1.LabelPodSecurityEnforce, "pod-security.kubernetes.io/warn"}

// setPodSecurity holds the namespace to the level: pods that are there go on, looser labels
// are tightened. A stricter one of somebody else's stays: the namespace was handed
// over with it.
func setPodSecurity(namespace *corev1.Namespace, level v1alpha1.PodSecurity) {
	for _, label := range podSecurityLabels {
		present := v1alpha1.PodSecurity(namespace.Labels[label])
		if isStricter(present, level) && !isLabelManagedByLifecycle(namespace, label) {
			continue
		}
		namespace.Labels[label] = string(level)
	}
}

// removePodSecurity takes off what lifecycle wrote of that, and leaves what others did.
func removePodSecurity(namespace *corev1.Namespace) {
	for _, label := range podSecurityLabels {
		if isLabelManagedByLifecycle(namespace, label) {
			delete(namespace.Labels, label)
		}
	}
}

// podSecurityLevels are the levels, the strictest last. What is none of them, or missing,
// holds nothing back.
var podSecurityLevels = []v1alpha1.PodSecurity{v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted}

func isStricter(a, b v1alpha1.PodSecurity) bool {
	return slices.Index(podSecurityLevels, a) > slices.Index(podSecurityLevels, b)
}

// hasStricterPodSecurity tells whether a label holds the namespace to more than the level.
func hasStricterPodSecurity(namespace *corev1.Namespace, level v1alpha1.PodSecurity) bool {
	return slices.ContainsFunc(podSecurityLabels, func(label string) bool {
		return isStricter(v1alpha1.PodSecurity(namespace.Labels[label]), level)
	})
}

// isLabelManagedByLifecycle tells whether lifecycle was the last to write the label, of a
// namespace as the API server has it.
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

// setQueuedLabel says on a namespace whether one of the project's pools has an engine
// that counts what makes pods before there are pods. The API server can tell by the
// label alone where such objects must not come in uncounted.
func setQueuedLabel(namespace *corev1.Namespace, pools []input.NodePool) {
	if slices.ContainsFunc(pools, func(pool input.NodePool) bool { return pool.Scheduler == v1alpha1.SchedulerKueue }) {
		namespace.Labels[v1alpha1.LabelQueued] = "true"
	} else {
		delete(namespace.Labels, v1alpha1.LabelQueued)
	}
}
