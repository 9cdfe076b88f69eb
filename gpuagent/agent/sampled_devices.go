// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/utilization"
)

// newDevices returns a GPU's devices for a sample. Without a reading their use is unknown.
func (s *sampler) newDevices(gpu *v1alpha1.ObservedGPU, r *gpuReading, holders *devices.Snapshot) []utilization.Device {
	if r == nil {
		r = &gpuReading{source: v1alpha1.UtilizationUnavailable, busy: nvml.UnknownPercent, processesErr: nvml.ErrTimeout}
	}
	whole := utilization.Device{
		UUID: string(gpu.UUID), GPU: string(gpu.UUID), Source: r.source, Busy: r.busy, PerProcess: r.busyByPID != nil,
		ProcessesUnknown: r.processesErr != nil, Pods: podUIDs(holders, string(gpu.UUID)),
	}
	if gpu.MIG.Current != v1alpha1.MIGModeEnabled {
		for _, p := range r.processes {
			whole.Processes = append(whole.Processes, s.newProcess(p, r.busyByPID[p.PID], holders)...)
		}
		return []utilization.Device{whole}
	}
	var list []utilization.Device
	for i := range gpu.Instances {
		it := &gpu.Instances[i]
		if it.UUID == "" {
			continue
		}
		d := utilization.Device{
			UUID: it.UUID, GPU: whole.GPU, Source: r.source, Busy: nvml.UnknownPercent,
			ProcessesUnknown: whole.ProcessesUnknown || r.starts == nil, Pods: podUIDs(holders, it.UUID),
		}
		if busy, ok := r.busyByStart[int(it.Start)]; ok {
			d.Busy = busy
		}
		for _, p := range r.processes {
			if start, ok := r.starts[p.Instance]; ok && start == int(it.Start) {
				d.Processes = append(d.Processes, s.newProcess(p, 0, holders)...)
			}
		}
		list = append(list, d)
	}
	return list
}

// newProcess returns a process with its pod; none if the process ended, or just appeared.
func (s *sampler) newProcess(p nvml.Process, busy int, holders *devices.Snapshot) []utilization.Process {
	uids, settled, err := s.resolver.Resolve(p.PID)
	if err != nil || !settled {
		return nil
	}
	process := utilization.Process{PID: p.PID, MemoryMiB: p.MemoryMiB, Busy: busy}
	if pod, ok := holders.PodByUID(uids...); ok {
		process.Pod = pod.UID
	} else if len(uids) > 0 {
		process.Pod = uids[0]
	} else {
		process.Other = s.resolver.Other(p.PID)
	}
	return []utilization.Process{process}
}

// podUIDs returns the pods to which the kubelet assigned a device. Pods that the API server no longer has
// have no UID, and no use.
func podUIDs(holders *devices.Snapshot, device string) (uids []types.UID) {
	for _, pod := range holders.PodsOnDevice(device) {
		if pod.UID != "" {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

// podProperties returns the thresholds of the pods and the shares of those that have a part of their GPUs: their
// GPU quota over their number of GPUs. A pod with an invalid threshold has the default one, and an error.
func podProperties(holders *devices.Snapshot) (properties map[types.UID]utilization.Pod, invalid map[types.UID]error) {
	gpus := map[types.UID]int64{}
	for _, use := range holders.PodUses() {
		for _, device := range use.Devices {
			if strings.HasPrefix(device, "GPU-") {
				gpus[use.UID]++
			}
		}
	}
	properties = map[types.UID]utilization.Pod{}
	for i := range holders.Pods {
		pod := &holders.Pods[i]
		p := utilization.Pod{Share: 1, Threshold: utilization.DefaultThreshold}
		if milli := quotaMilli(pod); milli > 0 {
			count := gpus[pod.UID]
			if count == 0 {
				count = scheduledShares(pod)
			}
			if count > 0 {
				p.Share = min(1, float64(milli)/float64(1000*count))
			}
		}
		if text, found := pod.Annotations[v1alpha1.AnnotationActive]; found {
			terms, err := v1alpha1.ParseActivityTerms(text)
			if err == nil {
				p.Threshold = utilization.Threshold{Percent: float64(terms.Percent), Window: terms.Window.Length()}
			} else {
				if invalid == nil {
					invalid = map[types.UID]error{}
				}
				invalid[pod.UID] = err
			}
		}
		properties[pod.UID] = p
	}
	return properties, invalid
}

// scheduledShares returns on how many GPUs a pod has a share that its scheduler and not the kubelet assigned, as
// KAI-Scheduler does; 0 for other pods.
func scheduledShares(pod *corev1.Pod) int64 {
	request, err := workload.ParsePod(pod)
	if err != nil || request.Form != workload.FormShare && request.Form != workload.FormMemory {
		return 0
	}
	return request.Devices
}

// logInvalidThresholds logs each pod with an invalid threshold once.
func (s *sampler) logInvalidThresholds(pods []corev1.Pod, invalid map[types.UID]error) {
	for i := range pods {
		pod := &pods[i]
		if err := invalid[pod.UID]; err != nil && s.invalidThresholds[pod.UID] == nil {
			s.log.Info("Ignored the activity annotation of a pod", "namespace", pod.Namespace, "pod", pod.Name, "default",
				v1alpha1.ActivityTerms{}.String(), "reason", err.Error())
		}
	}
	s.invalidThresholds = invalid
}

// quotaMilli returns the GPU quota that a pod requests, in thousandths of a GPU.
func quotaMilli(pod *corev1.Pod) (sum int64) {
	for i := range pod.Spec.Containers {
		for name, quota := range pod.Spec.Containers[i].Resources.Requests {
			if v1alpha1.IsGPUMilli(name) {
				sum += quota.Value()
			}
		}
	}
	return sum
}
