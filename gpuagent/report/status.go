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
	// Conditions are those that changed or stayed; one that is left out stays as it is.
	Conditions []metav1.Condition
}

// The limits of the schema, in characters.
const (
	maxVersion = 64
	maxMessage = 1024
	maxSlices  = 512
	maxReason  = 32768
)

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
		next.GPUs = bounded(facts.GPUs)
		next.Slices = cut(slices(next.GPUs), maxSlices)
	}
	for _, condition := range facts.Conditions {
		condition.ObservedGeneration = facts.Generation
		condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		condition.Message = cut(condition.Message, maxReason)
		meta.SetStatusCondition(&next.Conditions, condition)
	}
	return next
}

// bounded are the GPUs with messages no longer than the schema allows.
func bounded(gpus []v1alpha1.ObservedGPU) []v1alpha1.ObservedGPU {
	list := make([]v1alpha1.ObservedGPU, 0, len(gpus))
	for i := range gpus {
		gpu := gpus[i].DeepCopy()
		gpu.Message = cut(gpu.Message, maxMessage)
		for j := range gpu.Instances {
			gpu.Instances[j].Message = cut(gpu.Instances[j].Message, maxMessage)
		}
		list = append(list, *gpu)
	}
	return list
}

// cut is the text, or as much of it as there may be, with a mark.
func cut(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}
