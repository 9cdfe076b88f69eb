// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/utilization"
)

const (
	// defaultUseInterval is the shortest time between two reports of the use alone, in machine time.
	defaultUseInterval = 30 * time.Second
	// memoryStep is the part of a pod's memory by which it has to change for a report: a twentieth.
	memoryStep = 20
)

// isUseDue reports whether to write a sample while nothing else changes: with each change of the findings, after useInterval
// if the use changed, and in any case after five thirds of it, so that readers do not take the agent for absent. A
// time in the future comes from a clock that was set back.
func isUseDue(former *v1alpha1.GPUNodeStatus, pods []v1alpha1.PodUsage, sample *utilization.Result, useInterval time.Duration) bool {
	if hasFindingChanged(former.Findings, validFindings(sample.Findings)) {
		return true
	}
	age, longest := sample.At.Sub(former.SampledAt.Time), useInterval*5/3
	return age >= longest || age < -longest || age >= useInterval && hasUseChanged(pods, sample, useInterval)
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

// setUse sets the use of all pods and the processes outside of pods to those of one sample.
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
	for i := range s.GPUs {
		gpu := &s.GPUs[i]
		gpu.OtherProcesses, gpu.OtherProcessesOmitted = otherProcesses(sample.Devices, string(gpu.UUID))
	}
}

// otherProcesses returns the processes outside of pods on a GPU and its MIG devices, those with the most memory
// first, and the number of those that exceed the schema's limit.
func otherProcesses(devices []utilization.Device, gpu string) (list []v1alpha1.OtherProcess, omitted int32) {
	for i := range devices {
		if devices[i].GPU != gpu {
			continue
		}
		for _, p := range devices[i].Processes {
			if p.Other == nil {
				continue
			}
			other := *p.Other
			if p.MemoryMiB != nvml.UnknownMiB {
				other.MemoryMiB = &p.MemoryMiB
			}
			list = append(list, other)
		}
	}
	slices.SortFunc(list, func(a, b v1alpha1.OtherProcess) int {
		return cmp.Or(cmp.Compare(ptr.Deref(b.MemoryMiB, -1), ptr.Deref(a.MemoryMiB, -1)), cmp.Compare(a.PID, b.PID))
	})
	kept := min(len(list), maxOtherProcesses)
	return list[:kept], int32(len(list) - kept)
}

// keepOtherProcesses copies what only a sample changes from the former GPUs.
func keepOtherProcesses(gpus, former []v1alpha1.ObservedGPU) {
	for i := range gpus {
		gpu := &gpus[i]
		if at := slices.IndexFunc(former, func(f v1alpha1.ObservedGPU) bool { return f.UUID == gpu.UUID }); at >= 0 {
			gpu.OtherProcesses, gpu.OtherProcessesOmitted = former[at].OtherProcesses, former[at].OtherProcessesOmitted
		}
	}
}
