// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"maps"
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
)

// topSource is the kind of objects that the rows come from.
type topSource string

const (
	sourceNodes  topSource = "GPUNode"
	sourceClocks topSource = "WorkloadClock"
)

// The age from which a sample is old. Agents write one at least once a minute. Clocks have one of the last
// five minutes, and of the last hour while the GPUs are idle.
const (
	sampleMaxAge          = 90 * time.Second
	clockSampleMaxAge     = 5*time.Minute + sampleMaxAge
	idleClockSampleMaxAge = time.Hour + sampleMaxAge
)

// topObservation is the use of GPUs at one time.
type topObservation struct {
	source topSource
	// now is machine time for GPUNodes and policy time for WorkloadClocks, as the times of both are.
	now    time.Time
	nodes  []v1alpha1.GPUNode
	clocks []v1alpha1.WorkloadClock
	// projects has the names of projects by namespace, as far as the user may read them.
	projects map[string]string
	// namespace is that of the clocks.
	namespace string
}

func (o *topObservation) sourceNote() string {
	return "You may not list GPUNodes: this shows the workloads" + inNamespace(o.namespace) + ", from their clocks."
}

// topPodRow is a pod, or a workload if the row is from a WorkloadClock.
type topPodRow struct {
	Namespace string `json:"namespace"`
	// Kind is Pod, or the kind of the workload.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Project is empty if it is unknown, or if the namespace has none.
	Project string `json:"project,omitempty"`
	// Node and Devices are empty for a workload.
	Node    string   `json:"node,omitempty"`
	Devices []string `json:"devices,omitempty"`
	// GPUs is the number of GPUs that a workload holds, as a quantity; empty for a pod.
	GPUs string `json:"gpus,omitempty"`
	// UtilizationSources are the sources of the use; empty for a workload.
	UtilizationSources []v1alpha1.UtilizationSource `json:"utilizationSources,omitempty"`
	// Findings are what is wrong with the use; empty for a workload.
	Findings []v1alpha1.Finding `json:"findings,omitempty"`
	useFigures
}

// pods returns the rows of all pods, or of all workloads that hold GPUs.
func (o *topObservation) pods() []topPodRow {
	rows := []topPodRow{}
	for i := range o.nodes {
		node := &o.nodes[i]
		sources := deviceSources(node)
		for k := range node.Status.Pods {
			rows = append(rows, o.newPodRow(node, &node.Status.Pods[k], sources))
		}
	}
	for i := range o.clocks {
		if o.clocks[i].Status.GPUs != nil {
			rows = append(rows, o.newWorkloadRow(&o.clocks[i]))
		}
	}
	return rows
}

func (o *topObservation) newPodRow(node *v1alpha1.GPUNode, pod *v1alpha1.PodUsage, sources map[string]v1alpha1.UtilizationSource) topPodRow {
	var share *int64
	if pod.ShareMiB > 0 {
		share = &pod.ShareMiB
	}
	row := topPodRow{
		Namespace: pod.Namespace, Kind: "Pod", Name: pod.Name, Project: o.projects[pod.Namespace], Node: node.Name, Devices: pod.Devices,
		useFigures: newUseFigures(share, pod.MemoryMiB, pod.LastActive, node.Status.SampledAt),
	}
	row.markOld(o.now, sampleMaxAge)
	used := map[v1alpha1.UtilizationSource]bool{}
	for _, device := range pod.Devices {
		if source := sources[device]; source != "" {
			used[source] = true
		}
	}
	row.UtilizationSources = slices.Sorted(maps.Keys(used))
	for _, finding := range node.Status.Findings {
		if finding.PodUID == pod.UID {
			row.Findings = append(row.Findings, finding)
		}
	}
	return row
}

// newWorkloadRow returns the row of a clock. Its idle time continues after the sample: a use would be written
// within minutes.
func (o *topObservation) newWorkloadRow(clock *v1alpha1.WorkloadClock) topPodRow {
	row := topPodRow{
		Namespace: clock.Namespace, Kind: clock.Spec.Root.Kind, Name: clock.Spec.Root.Name, Project: o.projects[clock.Namespace],
		GPUs: clock.Status.GPUs.String(), useFigures: useFigures{Use: useUnknown},
	}
	maxAge := clockSampleMaxAge
	if u := clock.Status.GPUUsage; u != nil {
		row.useFigures = newUseFigures(u.ShareMiB, u.MemoryMiB, u.LastActive, u.SampledAt)
	}
	if row.Use == useIdle {
		maxAge = idleClockSampleMaxAge
		if idle := newClockRow(clock, o.now).IdleSeconds; idle != nil {
			row.IdleSeconds = idle
		}
	}
	row.markOld(o.now, maxAge)
	return row
}

// deviceSources returns the sources of utilization by the UUID of a GPU or MIG device.
func deviceSources(node *v1alpha1.GPUNode) map[string]v1alpha1.UtilizationSource {
	sources := map[string]v1alpha1.UtilizationSource{}
	for i := range node.Status.GPUs {
		gpu := &node.Status.GPUs[i]
		sources[string(gpu.UUID)] = gpu.UtilizationSource
		for k := range gpu.Instances {
			sources[gpu.Instances[k].UUID] = gpu.UtilizationSource
		}
	}
	return sources
}

// topProjectRow is the sum of the pods or workloads of a project.
type topProjectRow struct {
	// Project is empty for pods outside of projects, and if the user may not read it.
	Project string `json:"project,omitempty"`
	// Pods is the number of pods, or of workloads if the rows are from WorkloadClocks.
	Pods    int `json:"pods"`
	Busy    int `json:"busy"`
	Idle    int `json:"idle"`
	Unknown int `json:"unknown"`
	useFigures
}

func newTopProjectRows(pods []topPodRow) []topProjectRow {
	byProject := map[string][]useFigures{}
	for i := range pods {
		byProject[pods[i].Project] = append(byProject[pods[i].Project], pods[i].useFigures)
	}
	rows := []topProjectRow{}
	for _, project := range slices.Sorted(maps.Keys(byProject)) {
		figures := byProject[project]
		row := topProjectRow{Project: project, Pods: len(figures), useFigures: combineFigures(figures)}
		for _, f := range figures {
			switch f.Use {
			case useBusy:
				row.Busy++
			case useIdle:
				row.Idle++
			default:
				row.Unknown++
			}
		}
		rows = append(rows, row)
	}
	return rows
}
