// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// topDeviceRow is a GPU without MIG instances, or a MIG instance.
type topDeviceRow struct {
	Node     string `json:"node"`
	NodePool string `json:"nodePool,omitempty"`
	// GPU is the number of the GPU on its node.
	GPU   int32  `json:"gpu"`
	UUID  string `json:"uuid,omitempty"`
	Model string `json:"model,omitempty"`
	// Instance is the profile and the start of a MIG instance, such as 3g.20gb@4; empty for a GPU.
	Instance string             `json:"instance,omitempty"`
	Health   v1alpha1.GPUHealth `json:"health,omitempty"`
	// TotalMiB is the memory of a GPU; nil for a MIG instance, whose memory is unknown.
	TotalMiB *int64 `json:"totalMiB,omitempty"`
	// Pods are the pods to which the device was allocated, as namespace/name.
	Pods              []string                   `json:"pods"`
	UtilizationSource v1alpha1.UtilizationSource `json:"utilizationSource,omitempty"`
	// OtherProcesses are the processes outside of pods on the GPU, on all its MIG instances together, and
	// OtherProcessesOmitted counts those that the GPUNode leaves out.
	OtherProcesses        []v1alpha1.OtherProcess `json:"otherProcesses,omitempty"`
	OtherProcessesOmitted int32                   `json:"otherProcessesOmitted,omitempty"`
	// projects and namespaces are those of the pods.
	projects, namespaces []string
	// The share and the memory are those of its pods. They are unknown if one has several devices.
	useFigures
}

func newTopDeviceRows(o *topObservation, pods []topPodRow) []topDeviceRow {
	users := map[string][]*topPodRow{} // by node and device
	for i := range pods {
		for _, device := range pods[i].Devices {
			users[pods[i].Node+"/"+device] = append(users[pods[i].Node+"/"+device], &pods[i])
		}
	}
	rows := []topDeviceRow{}
	for i := range o.nodes {
		node := &o.nodes[i]
		for k := range node.Status.GPUs {
			gpu := &node.Status.GPUs[k]
			row := topDeviceRow{
				Node: node.Name, NodePool: node.Spec.NodePool, GPU: gpu.Index, UUID: string(gpu.UUID), Model: gpu.Model,
				Health: gpu.Health, UtilizationSource: gpu.UtilizationSource,
				OtherProcesses: gpu.OtherProcesses, OtherProcessesOmitted: gpu.OtherProcessesOmitted,
			}
			if gpu.MemoryMiB > 0 {
				row.TotalMiB = &gpu.MemoryMiB
			}
			if len(gpu.Instances) == 0 {
				row.setPods(users[node.Name+"/"+row.UUID], node, o.now)
				rows = append(rows, row)
			}
			for n := range gpu.Instances {
				instance := &gpu.Instances[n]
				of := row
				of.UUID, of.TotalMiB = instance.UUID, nil
				of.Instance = string(instance.Profile) + "@" + strconv.Itoa(int(instance.Start))
				of.setPods(users[node.Name+"/"+of.UUID], node, o.now)
				rows = append(rows, of)
			}
		}
	}
	return rows
}

func (r *topDeviceRow) setPods(pods []*topPodRow, node *v1alpha1.GPUNode, now time.Time) {
	r.Pods = []string{}
	var figures []useFigures
	for _, pod := range pods {
		f := pod.useFigures
		if len(pod.Devices) > 1 {
			f.ShareMiB, f.MemoryMiB = nil, nil
		}
		figures = append(figures, f)
		r.Pods = append(r.Pods, pod.Namespace+"/"+pod.Name)
		r.projects, r.namespaces = append(r.projects, pod.Project), append(r.namespaces, pod.Namespace)
	}
	slices.Sort(r.Pods)
	r.useFigures = combineFigures(figures)
	r.SampledAt = optionalTime(node.Status.SampledAt)
	r.markOld(now, sampleMaxAge)
}

// others returns the number of processes outside of pods and what they are, such as 2: Slurm,Host.
func (r *topDeviceRow) others() string {
	kinds := map[v1alpha1.OtherProcessKind]bool{}
	for _, p := range r.OtherProcesses {
		kinds[p.Kind] = true
	}
	if len(kinds) == 0 {
		return ""
	}
	return fmt.Sprintf("%d: %s", len(r.OtherProcesses)+int(r.OtherProcessesOmitted), joinSorted(kinds))
}

func (r *topDeviceRow) name() string {
	return strings.TrimSuffix(strconv.Itoa(int(r.GPU))+" "+r.Instance, " ")
}
