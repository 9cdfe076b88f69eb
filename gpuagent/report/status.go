// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Facts are what the agent found.
type Facts struct {
	// Generation is the one of the spec that it went by.
	Generation int64
	// Complete tells that this generation was carried out, or found impossible.
	Complete bool
	// DriverVersion is the driver's. Empty: what was last reported stays.
	DriverVersion string
	// GPUs are the node's. Nil: they cannot be told, and what was last reported stays.
	GPUs []v1alpha1.ObservedGPU
	// Pods are those that were given a GPU or a MIG device, and which. Nil: as for GPUs.
	Pods []v1alpha1.PodUse
	// Conditions are those that changed or stayed; one that is left out stays as it is.
	Conditions []metav1.Condition
}

// status is what the facts make of a former status.
func status(former *v1alpha1.GPUNodeStatus, facts Facts, now time.Time) *v1alpha1.GPUNodeStatus {
	next := former.DeepCopy()
	if facts.Complete {
		next.ObservedGeneration = facts.Generation
	}
	if facts.DriverVersion != "" {
		next.DriverVersion = cut(facts.DriverVersion, maxVersion)
	}
	if facts.GPUs != nil {
		next.GPUs = bounded(facts.GPUs, former.GPUs)
		next.Slices = cut(slices(next.GPUs), maxSlices)
	}
	if facts.Pods != nil {
		next.Pods = uses(former.Pods, facts.Pods)
	}
	for _, condition := range facts.Conditions {
		condition.ObservedGeneration = facts.Generation
		condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		condition.Message = cut(condition.Message, maxReason)
		meta.SetStatusCondition(&next.Conditions, condition)
	}
	return next
}
