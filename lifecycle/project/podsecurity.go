// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// podSecurityLabels are held to the level: by the first pods are refused, by the
// second the authors of what makes pods are warned, who would not hear of that.
var podSecurityLabels = []string{v1alpha1.LabelPodSecurityEnforce, "pod-security.kubernetes.io/warn"}

// secure holds the namespace to the level: pods that are there go on, looser labels
// are tightened. A stricter one of somebody else's stays: the namespace was handed
// over with it.
func secure(namespace *corev1.Namespace, level v1alpha1.PodSecurity) {
	for _, label := range podSecurityLabels {
		present := v1alpha1.PodSecurity(namespace.Labels[label])
		if stricter(present, level) && !labelledByUs(namespace, label) {
			continue
		}
		namespace.Labels[label] = string(level)
	}
}

// unsecure takes off what lifecycle wrote of that, and leaves what others did.
func unsecure(namespace *corev1.Namespace) {
	for _, label := range podSecurityLabels {
		if labelledByUs(namespace, label) {
			delete(namespace.Labels, label)
		}
	}
}

// strictness are the levels, the strictest last. What is none of them, or missing,
// holds nothing back.
var strictness = []v1alpha1.PodSecurity{v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted}

func stricter(a, b v1alpha1.PodSecurity) bool {
	return slices.Index(strictness, a) > slices.Index(strictness, b)
}

// stricterThan tells whether a label holds the namespace to more than the level.
func stricterThan(namespace *corev1.Namespace, level v1alpha1.PodSecurity) bool {
	return slices.ContainsFunc(podSecurityLabels, func(label string) bool {
		return stricter(v1alpha1.PodSecurity(namespace.Labels[label]), level)
	})
}

// labelledByUs tells whether lifecycle was the last to write the label, of a
// namespace as the API server has it.
func labelledByUs(namespace *corev1.Namespace, label string) bool {
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
