// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/utilization"
)

const (
	// defaultUseInterval is the shortest time between two reports of the use alone, in machine time.
	defaultUseInterval = 30 * time.Second
	// memoryStep is the part of a pod's memory by which it has to change for a report: a twentieth.
	memoryStep = 20
)

// isUseDue reports whether to write a sample: with each change of next or of the findings, after useInterval if the use
// changed, and in any case after five thirds of it, so that readers do not take the agent for absent. A
// time in the future comes from a clock that was set back.
func isUseDue(former, next *v1alpha1.GPUNodeStatus, sample *utilization.Result, useInterval time.Duration) bool {
	if former.SampledAt == nil || !equality.Semantic.DeepEqual(former, next) {
		return true
	}
	if hasFindingChanged(former.Findings, validFindings(sample.Findings)) {
		return true
	}
	age, longest := sample.At.Sub(former.SampledAt.Time), useInterval*5/3
	return age >= longest || age < -longest || age >= useInterval && hasUseChanged(next.Pods, sample, useInterval)
}

// hasUseChanged reports whether the use of a pod differs from that in the status.
func hasUseChanged(pods []v1alpha1.PodUsage, sample *utilization.Result, step time.Duration) bool {
	for i := range pods {
		was, is := &pods[i], sample.Pods[pods[i].UID]
		switch {
		case (was.MemoryMiB == nil) != (is.MemoryMiB == nil), (was.LastActive == nil) != (is.LastActive == nil):
			return true
		case is.MemoryMiB != nil && isMemoryStep(*was.MemoryMiB, *is.MemoryMiB):
			return true
		case was.ShareMiB != is.ShareMiB, was.LimitMiB != is.LimitMiB:
			return true
		case is.LastActive != nil && is.LastActive.Sub(was.LastActive.Time) >= step:
			return true
		}
	}
	return false
}

// hasFindingChanged reports whether there are other findings than before. Their excess and their order are part
// of the use.
func hasFindingChanged(former, findings []v1alpha1.Finding) bool {
	return len(former) != len(findings) || slices.ContainsFunc(findings, func(f v1alpha1.Finding) bool {
		return !slices.ContainsFunc(former, func(g v1alpha1.Finding) bool {
			return f.PodUID == g.PodUID && f.Reason == g.Reason && f.Device == g.Device && f.Since.Equal(&g.Since)
		})
	})
}

// validFindings returns the findings within the schema's limits, the worst first.
func validFindings(findings []v1alpha1.Finding) []v1alpha1.Finding {
	return slices.Clone(findings[:min(len(findings), maxFindings)])
}

func isMemoryStep(was, is int64) bool {
	return was != is && max(was-is, is-was)*memoryStep >= max(was, is)
}

// setUse sets the use of all pods to that of one sample.
func setUse(s *v1alpha1.GPUNodeStatus, sample *utilization.Result) {
	s.SampledAt = &metav1.Time{Time: sample.At.Truncate(time.Second)}
	s.Findings = validFindings(sample.Findings)
	for i := range s.Pods {
		use := sample.Pods[s.Pods[i].UID]
		s.Pods[i].MemoryMiB, s.Pods[i].LastActive = use.MemoryMiB, nil
		s.Pods[i].ShareMiB, s.Pods[i].LimitMiB = use.ShareMiB, use.LimitMiB
		if use.LastActive != nil {
			s.Pods[i].LastActive = &metav1.Time{Time: use.LastActive.Truncate(time.Second)}
		}
	}
}
