// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/utilization"
)

// sampledNode is a sample with the GPUs and holders of the node.
type sampledNode struct {
	result  *utilization.Result
	gpus    []v1alpha1.ObservedGPU
	holders *devices.Snapshot
}

// lastSample is the sample that the gauges of use report.
var lastSample atomic.Pointer[sampledNode]

// useCollector collects the gauges of use from lastSample. A removed pod or device so has no series.
type useCollector struct{}

var (
	podLabels    = []string{"gpu", "uuid", "device", "namespace", "pod", "project"}
	deviceLabels = []string{"gpu", "uuid", "device"}
	otherLabels  = []string{"gpu", "uuid", "device", "kind"}
	podMemory    = prometheus.NewDesc("sluice_gpu_pod_memory_used_bytes",
		"GPU memory that a pod's processes use on a device; absent if unknown.", podLabels, nil)
	podShare = prometheus.NewDesc("sluice_gpu_pod_memory_share_bytes",
		"GPU memory that a pod may use on a device without a burst; absent if unknown.", podLabels, nil)
	podFinding = prometheus.NewDesc("sluice_gpu_pod_finding_excess_bytes",
		"GPU memory on a device by which a pod exceeds what it was given, by the reason of the finding: ShareExceeded, "+
			"NotAllocated, MemoryConflict; 0 if it is unknown.", append(podLabels[:len(podLabels):len(podLabels)], "reason"), nil)
	podUtilization = prometheus.NewDesc("sluice_gpu_pod_utilization_ratio",
		"A pod's utilization of a device, 0 to 1; absent if unknown.", podLabels, nil)
	podLastActive = prometheus.NewDesc("sluice_gpu_pod_last_active_timestamp_seconds",
		"Time of a pod's last use of its GPUs, in machine time; absent if unknown.", []string{"namespace", "pod", "project"}, nil)
	instanceUtilization = prometheus.NewDesc("sluice_gpu_instance_utilization_ratio",
		"Utilization of a MIG device, 0 to 1; absent if unknown.", deviceLabels, nil)
	otherProcesses = prometheus.NewDesc("sluice_gpu_other_processes",
		"Processes outside of pods on a device.", otherLabels, nil)
	otherMemory = prometheus.NewDesc("sluice_gpu_other_memory_used_bytes",
		"GPU memory that processes outside of pods use on a device, as far as it is known.", otherLabels, nil)
)

// Describe implements prometheus.Collector.
func (useCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{podMemory, podShare, podFinding, podUtilization, podLastActive, instanceUtilization, otherProcesses, otherMemory} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (useCollector) Collect(to chan<- prometheus.Metric) {
	node := lastSample.Load()
	if node == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	index := map[string]string{}
	for i := range node.gpus {
		index[string(node.gpus[i].UUID)] = strconv.Itoa(int(node.gpus[i].Index))
	}
	for i := range node.holders.Pods {
		pod := &node.holders.Pods[i]
		use, known := node.result.Pods[pod.UID]
		if !known {
			continue
		}
		project := pod.Labels[v1alpha1.LabelProject]
		if use.LastActive != nil {
			gauge(podLastActive, float64(use.LastActive.UnixMilli())/1000, pod.Namespace, pod.Name, project)
		}
		for _, d := range use.Devices {
			labels := []string{index[d.GPU], d.GPU, d.UUID, pod.Namespace, pod.Name, project}
			if d.MemoryMiB != nil {
				gauge(podMemory, float64(*d.MemoryMiB)*mebibyte, labels...)
			}
			if d.ShareMiB > 0 {
				gauge(podShare, float64(d.ShareMiB)*mebibyte, labels...)
			}
			for _, f := range node.result.Findings {
				if f.PodUID == pod.UID && f.Device == d.UUID {
					gauge(podFinding, float64(f.ExcessMiB)*mebibyte, append(labels[:len(labels):len(labels)], string(f.Reason))...)
				}
			}
			if d.Busy != nil {
				gauge(podUtilization, float64(*d.Busy)/100, labels...)
			}
		}
	}
	for i := range node.result.Devices {
		d := &node.result.Devices[i]
		labels := []string{index[d.GPU], d.GPU, d.UUID}
		if d.UUID != d.GPU && d.Busy != nvml.UnknownPercent {
			gauge(instanceUtilization, float64(d.Busy)/100, labels...)
		}
		for kind, others := range outsideOfPods(d) {
			labels := append(slices.Clone(labels), string(kind))
			gauge(otherProcesses, float64(others.count), labels...)
			gauge(otherMemory, float64(others.memoryMiB)*mebibyte, labels...)
		}
	}
}

// processSum is a number of processes, and their known memory.
type processSum struct{ count, memoryMiB int64 }

// outsideOfPods returns the processes outside of pods on a device, by their kind.
func outsideOfPods(d *utilization.Device) map[v1alpha1.OtherProcessKind]processSum {
	sums := map[v1alpha1.OtherProcessKind]processSum{}
	for i := range d.Processes {
		if p := &d.Processes[i]; p.Other != nil {
			sum := sums[p.Other.Kind]
			sums[p.Other.Kind] = processSum{sum.count + 1, sum.memoryMiB + max(0, p.MemoryMiB)}
		}
	}
	return sums
}
