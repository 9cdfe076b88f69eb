// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
)

func TestANamespaceSaysWhetherItsWorkIsQueued(t *testing.T) {
	plain, queued := facts.Pool{Scheduler: v1alpha1.SchedulerKube}, facts.Pool{Scheduler: v1alpha1.SchedulerKueue}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for _, step := range []struct {
		pools []facts.Pool
		want  string
	}{
		{[]facts.Pool{plain}, ""},
		{[]facts.Pool{plain, queued}, "true"},
		{[]facts.Pool{queued}, "true"},
		{nil, ""},
	} {
		markQueued(namespace, step.pools)
		if got := namespace.Labels[v1alpha1.LabelQueued]; got != step.want {
			t.Errorf("with %d pools: %q, want %q", len(step.pools), got, step.want)
		}
	}
}
