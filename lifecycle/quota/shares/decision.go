// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// maxSampleAge is the age of a sample, in machine time, up to which it shows that a pod is above its share.
// Agents write one at least once a minute.
const maxSampleAge = 90 * time.Second

// Observation is what is known about the pods of one node.
type Observation struct {
	// Now is the present, in machine time.
	Now time.Time
	// Status is the status of the GPUNode.
	Status *v1alpha1.GPUNodeStatus
	// Pods are the GPU pods of the node by UID.
	Pods map[types.UID]Pod
}

// Pod is a pod of the node.
type Pod struct {
	// Governed reports that it runs in the namespace of a project.
	Governed bool
	// Terminating reports that it is being deleted.
	Terminating bool
	// WarnOnly reports that it requests no GPU, or is gone: it has no share that it could exceed.
	WarnOnly bool
	// Announced is why its eviction is announced; empty if it is not.
	Announced v1alpha1.EndReason
}

// Decision is what follows from the findings on one node.
type Decision struct {
	// Warn are the findings whose pods are warned, the worst first.
	Warn []v1alpha1.Finding
	// Announce are the findings for which evictions are announced: at most one on each device.
	Announce []v1alpha1.Finding
	// Withdraw are the pods whose announced evictions are withdrawn.
	Withdraw []types.UID
	// Fresh reports whether the sample is new enough to decide.
	Fresh bool
}

// evicts reports whether a pod with the finding is evicted. A pod on a device that was not allocated to it is
// only warned: what assigned the device may be unknown to the agent.
func evicts(reason v1alpha1.FindingReason) bool {
	return reason == v1alpha1.FindingShareExceeded || reason == v1alpha1.FindingMemoryConflict
}

// Decide returns what to do about the findings on a node. The worst pod on a device goes first, and the next
// one only after it has terminated and its memory is free. An announcement is withdrawn when the finding is
// gone, and when the sample is too old to tell.
func Decide(o Observation) Decision {
	s := o.Status
	d := Decision{Fresh: isFresh(s, o.Now)}
	if !d.Fresh {
		d.Withdraw = o.withdrawn(func(types.UID) bool { return false })
		return d
	}
	findings := slices.Clone(s.Findings)
	slices.SortStableFunc(findings, func(a, b v1alpha1.Finding) int {
		return cmp.Or(cmp.Compare(b.ExcessMiB, a.ExcessMiB), a.Since.Compare(b.Since.Time), strings.Compare(string(a.PodUID), string(b.PodUID)))
	})
	d.Withdraw = o.withdrawn(func(pod types.UID) bool { return hasEvictingFinding(s, pod) })
	taken := map[string]bool{}
	for uid, pod := range o.Pods {
		if pod.Terminating || pod.Announced != "" && !slices.Contains(d.Withdraw, uid) {
			takeDevices(taken, s, uid)
		}
	}
	for _, f := range findings {
		pod, known := o.Pods[f.PodUID]
		if !known || !pod.Governed || pod.Terminating || pod.WarnOnly && evicts(f.Reason) {
			continue
		}
		d.Warn = append(d.Warn, f)
		if !evicts(f.Reason) || pod.Announced != "" || f.Device == "" || taken[f.Device] {
			continue
		}
		d.Announce = append(d.Announce, f)
		takeDevices(taken, s, f.PodUID)
	}
	return d
}

// isFresh reports whether a status has a sample that is new enough.
func isFresh(s *v1alpha1.GPUNodeStatus, now time.Time) bool {
	return s.SampledAt != nil && now.Sub(s.SampledAt.Time).Abs() <= maxSampleAge
}

// withdrawn returns the pods whose eviction was announced for their share without reason.
func (o *Observation) withdrawn(hasReason func(types.UID) bool) (pods []types.UID) {
	for uid, pod := range o.Pods {
		if pod.Announced == v1alpha1.EndShareExceeded && !pod.Terminating && !hasReason(uid) {
			pods = append(pods, uid)
		}
	}
	slices.Sort(pods)
	return pods
}

// hasEvictingFinding reports whether a pod has a finding for which it is evicted.
func hasEvictingFinding(s *v1alpha1.GPUNodeStatus, pod types.UID) bool {
	return slices.ContainsFunc(s.Findings, func(f v1alpha1.Finding) bool { return f.PodUID == pod && evicts(f.Reason) })
}

// takeDevices marks the devices that a pod has or uses.
func takeDevices(taken map[string]bool, s *v1alpha1.GPUNodeStatus, pod types.UID) {
	for i := range s.Findings {
		if s.Findings[i].PodUID == pod {
			taken[s.Findings[i].Device] = true
		}
	}
	for i := range s.Pods {
		if s.Pods[i].UID == pod {
			for _, device := range s.Pods[i].Devices {
				taken[device] = true
			}
		}
	}
}
