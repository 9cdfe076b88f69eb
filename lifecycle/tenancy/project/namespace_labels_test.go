// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
)

const (
	enforceLabel = "pod-security.kubernetes.io/enforce"
	warnLabel    = "pod-security.kubernetes.io/warn"
)

// managedFieldsEntry is what the API server keeps of who wrote a label.
func managedFieldsEntry(manager, label string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:` + label + `":{}}}}`)}
}

func TestNamespacePodSecurityLabels(t *testing.T) {
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
			secured: map[string]string{enforceLabel: "baseline", warnLabel: "baseline"},
			after:   map[string]string{enforceLabel: "baseline", warnLabel: "baseline"}, // until the managed fields name the writer
		},
		"another manager's looser label is tightened": {
			labels: map[string]string{enforceLabel: "privileged"}, written: []metav1.ManagedFieldsEntry{managedFieldsEntry(theirs, enforceLabel)}, level: "baseline",
			secured: map[string]string{enforceLabel: "baseline", warnLabel: "baseline"},
			after:   map[string]string{enforceLabel: "baseline", warnLabel: "baseline"},
		},
		"another manager's stricter label is kept": {
			labels: map[string]string{enforceLabel: "restricted", warnLabel: "baseline"}, written: []metav1.ManagedFieldsEntry{managedFieldsEntry(theirs, enforceLabel), managedFieldsEntry(ours, warnLabel)}, level: "baseline",
			secured: map[string]string{enforceLabel: "restricted", warnLabel: "baseline"},
			after:   map[string]string{enforceLabel: "restricted"},
		},
		"ours follows the department, and goes with the project": {
			labels: map[string]string{enforceLabel: "restricted", warnLabel: "restricted"}, written: []metav1.ManagedFieldsEntry{managedFieldsEntry(ours, enforceLabel), managedFieldsEntry(ours, warnLabel)}, level: "privileged",
			secured: map[string]string{enforceLabel: "privileged", warnLabel: "privileged"},
			after:   map[string]string{},
		},
		"what is no level holds nothing back": {
			labels: map[string]string{enforceLabel: "paranoid"}, written: []metav1.ManagedFieldsEntry{managedFieldsEntry(theirs, enforceLabel), {Manager: ours}}, level: "privileged",
			secured: map[string]string{enforceLabel: "privileged", warnLabel: "privileged"},
			after:   map[string]string{enforceLabel: "privileged", warnLabel: "privileged"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, ManagedFields: tc.written}}
			for label, value := range tc.labels {
				namespace.Labels[label] = value
			}
			setPodSecurity(namespace, tc.level)
			if diff := cmp.Diff(tc.secured, namespace.Labels); diff != "" {
				t.Errorf("secured (-want +got)\n%s", diff)
			}
			removePodSecurity(namespace)
			if diff := cmp.Diff(tc.after, namespace.Labels); diff != "" {
				t.Errorf("given up (-want +got)\n%s", diff)
			}
		})
	}
}

func TestQueuedLabelFollowsNodePoolScheduler(t *testing.T) {
	plain, queued := input.NodePool{Scheduler: v1alpha1.SchedulerKube}, input.NodePool{Scheduler: v1alpha1.SchedulerKueue}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for _, step := range []struct {
		pools []input.NodePool
		want  string
	}{
		{[]input.NodePool{plain}, ""},
		{[]input.NodePool{plain, queued}, "true"},
		{[]input.NodePool{queued}, "true"},
		{nil, ""},
	} {
		setQueuedLabel(namespace, step.pools)
		if got := namespace.Labels[v1alpha1.LabelQueued]; got != step.want {
			t.Errorf("with %d pools: %q, want %q", len(step.pools), got, step.want)
		}
	}
}
