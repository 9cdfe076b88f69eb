// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

const (
	enforce = "pod-security.kubernetes.io/enforce"
	warn    = "pod-security.kubernetes.io/warn"
)

// wrote is what the API server keeps of who wrote a label.
func wrote(manager, label string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:` + label + `":{}}}}`)}
}

func TestPodSecurityOfANamespace(t *testing.T) {
	const ours, theirs = v1alpha1.FieldManagerLifecycle, "kubectl"
	tests := map[string]struct {
		labels  map[string]string
		written []metav1.ManagedFieldsEntry
		level   v1alpha1.PodSecurity
		secured map[string]string
		after   map[string]string
	}{
		"a new one": {
			level:   "baseline",
			secured: map[string]string{enforce: "baseline", warn: "baseline"},
			after:   map[string]string{enforce: "baseline", warn: "baseline"}, // until the API server says who wrote it
		},
		"somebody's looser label is tightened": {
			labels: map[string]string{enforce: "privileged"}, written: []metav1.ManagedFieldsEntry{wrote(theirs, enforce)}, level: "baseline",
			secured: map[string]string{enforce: "baseline", warn: "baseline"},
			after:   map[string]string{enforce: "baseline", warn: "baseline"},
		},
		"somebody's stricter label is kept": {
			labels: map[string]string{enforce: "restricted", warn: "baseline"}, written: []metav1.ManagedFieldsEntry{wrote(theirs, enforce), wrote(ours, warn)}, level: "baseline",
			secured: map[string]string{enforce: "restricted", warn: "baseline"},
			after:   map[string]string{enforce: "restricted"},
		},
		"ours follows the department, and goes with the project": {
			labels: map[string]string{enforce: "restricted", warn: "restricted"}, written: []metav1.ManagedFieldsEntry{wrote(ours, enforce), wrote(ours, warn)}, level: "privileged",
			secured: map[string]string{enforce: "privileged", warn: "privileged"},
			after:   map[string]string{},
		},
		"what is no level holds nothing back": {
			labels: map[string]string{enforce: "paranoid"}, written: []metav1.ManagedFieldsEntry{wrote(theirs, enforce), {Manager: ours}}, level: "privileged",
			secured: map[string]string{enforce: "privileged", warn: "privileged"},
			after:   map[string]string{enforce: "privileged", warn: "privileged"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, ManagedFields: tc.written}}
			for label, value := range tc.labels {
				namespace.Labels[label] = value
			}
			secure(namespace, tc.level)
			if diff := cmp.Diff(tc.secured, namespace.Labels); diff != "" {
				t.Errorf("secured (-want +got)\n%s", diff)
			}
			unsecure(namespace)
			if diff := cmp.Diff(tc.after, namespace.Labels); diff != "" {
				t.Errorf("given up (-want +got)\n%s", diff)
			}
		})
	}
}
