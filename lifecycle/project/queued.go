// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
)

// markQueued says on a namespace whether one of the project's pools has an engine
// that counts what makes pods before there are pods. The API server can tell by the
// label alone where such objects must not come in uncounted.
func markQueued(namespace *corev1.Namespace, pools []facts.Pool) {
	if slices.ContainsFunc(pools, func(pool facts.Pool) bool { return pool.Scheduler == v1alpha1.SchedulerKueue }) {
		namespace.Labels[v1alpha1.LabelQueued] = "true"
	} else {
		delete(namespace.Labels, v1alpha1.LabelQueued)
	}
}
