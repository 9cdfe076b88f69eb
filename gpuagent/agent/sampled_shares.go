// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/shares"
	"sluice.dev/gpuagent/utilization"
)

// minShareGap is the longest time between two samples of an exceeded share, unless the agent samples less often.
const minShareGap = 10 * time.Second

// addShares adds to a sample what its pods may use, and the findings.
func (s *sampler) addShares(result *utilization.Result, o *observation, readings map[string]*gpuReading) {
	pods := podsByUID(o.holders, result)
	sample, memory := shares.Sample{At: result.At, Elapsed: result.At.Sub(s.firstAt)}, deviceMemory(o.gpus)
	users := map[string][]deviceUser{}
	for uid, pod := range pods {
		uses := result.Pods[uid].Devices
		for i := range uses {
			users[uses[i].UUID] = append(users[uses[i].UUID], deviceUser{pod, &uses[i]})
		}
	}
	for i := range result.Devices {
		d := &result.Devices[i]
		use := shares.DeviceUse{Device: shareDevice(d, memory[d.UUID], readings[d.GPU], o.holders), OtherMiB: unattributedMemory(d, pods)}
		for _, user := range users[d.UUID] {
			p := user.pod.use(d, use.Device, o.holders)
			p.MemoryMiB, p.LastActive = user.use.MemoryMiB, result.Pods[p.UID].LastActive
			user.use.ShareMiB = p.Allowance.ShareMiB
			user.pod.allowances = append(user.pod.allowances, p.Allowance)
			use.Pods = append(use.Pods, p)
		}
		sample.Devices = append(sample.Devices, use)
	}
	for uid, pod := range pods {
		use := result.Pods[uid]
		use.ShareMiB, use.LimitMiB = sumAllowances(pod.allowances)
		result.Pods[uid] = use
	}
	result.Findings = s.shares.Add(sample)
}

// deviceUser is a pod and its use of a device in the result.
type deviceUser struct {
	pod *sampledPod
	use *utilization.DeviceUse
}

// sumAllowances returns the share and the burst limit of a pod on all of its devices: 0 if the share is
// unknown on any of them, and no limit that is not above the share.
func sumAllowances(list []shares.Allowance) (shareMiB, limitMiB int64) {
	for _, a := range list {
		if a.ShareMiB == 0 {
			return 0, 0
		}
		shareMiB += a.ShareMiB
		limitMiB += a.MostMiB()
	}
	if limitMiB == shareMiB {
		limitMiB = 0
	}
	return shareMiB, limitMiB
}

// sampledPod is a pod with the request that admission left on it.
type sampledPod struct {
	*corev1.Pod
	request workload.Request
	// parsed reports whether the request is known.
	parsed     bool
	allowances []shares.Allowance
}

// podsByUID returns the pods of the node that the sample has, by UID. Pods that the API server no longer has
// are left out: nothing is known about their share.
func podsByUID(holders *devices.Snapshot, result *utilization.Result) map[types.UID]*sampledPod {
	pods := map[types.UID]*sampledPod{}
	for i := range holders.Pods {
		pod := &holders.Pods[i]
		if _, sampled := result.Pods[pod.UID]; sampled {
			request, err := workload.ParsePod(pod)
			pods[pod.UID] = &sampledPod{Pod: pod, request: request, parsed: err == nil}
		}
	}
	return pods
}

// use returns what the pod may use of a device.
func (p *sampledPod) use(d *utilization.Device, device shares.Device, holders *devices.Snapshot) shares.PodUse {
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	held := holders.HeldBy(d.UUID, name)
	return shares.PodUse{
		UID: p.UID, Governed: p.Labels[v1alpha1.LabelProject] != "", Priority: ptr.Deref(p.Spec.Priority, 0),
		HasProcess:   slices.ContainsFunc(d.Processes, func(process utilization.Process) bool { return process.Pod == p.UID }),
		Allowance:    shares.NewAllowance(&p.request, device, held),
		NotAllocated: held == 0 && p.isNotAllocated(d, name, holders),
	}
}

// isNotAllocated reports whether a device that the kubelet did not assign to the pod is certainly not the
// pod's. A scheduler assigns the shares of KAI-Scheduler and Volcano, a driver those of resource claims, and
// the kubelet no longer names what it assigned to init containers.
func (p *sampledPod) isNotAllocated(d *utilization.Device, name types.NamespacedName, holders *devices.Snapshot) bool {
	has, known := holders.HasDevices(name)
	switch {
	case !p.parsed || !known || len(p.request.Claims) > 0 || len(p.request.DeviceClasses) > 0 || len(p.request.OtherResources) > 0:
		return false
	case p.request.Form == workload.FormNone:
		return true
	case !has || d.UUID != d.GPU && holders.HeldBy(d.GPU, name) > 0:
		return false
	}
	return p.request.Form != workload.FormShare && p.request.Form != workload.FormMemory && !requestsGPUInInit(p.Pod)
}

// requestsGPUInInit reports whether an init container requests GPUs.
func requestsGPUInInit(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		for name := range c.Resources.Limits {
			if _, isMIG := v1alpha1.MIGProfileOf(name); isMIG || name == v1alpha1.ResourceNVIDIAGPU {
				return true
			}
		}
		return false
	})
}

// shareDevice returns a device with its memory. Without a reading nothing is known about its processes either.
func shareDevice(d *utilization.Device, memoryMiB int64, reading *gpuReading, holders *devices.Snapshot) shares.Device {
	device := shares.Device{UUID: d.UUID, MIG: d.UUID != d.GPU, MemoryMiB: memoryMiB}
	device.Replicas, device.Replicated = holders.Replicas(d.UUID)
	if reading != nil {
		device.ReservedMiB = reading.reservedMiB
	}
	return device
}

// deviceMemory returns the memory of the GPUs and of their MIG devices in MiB, as far as their models are known.
func deviceMemory(gpus []v1alpha1.ObservedGPU) map[string]int64 {
	memory := map[string]int64{}
	for i := range gpus {
		gpu := &gpus[i]
		memory[string(gpu.UUID)] = gpu.MemoryMiB
		if len(gpu.Instances) == 0 {
			continue
		}
		model := mig.ObservedModel(gpu)
		for j := range gpu.Instances {
			if model == nil || gpu.Instances[j].UUID == "" {
				continue
			}
			if profile, err := model.Profile(gpu.Instances[j].Profile); err == nil {
				memory[gpu.Instances[j].UUID] = profile.MemoryMiB
			}
		}
	}
	return memory
}

// reservedMemory is the memory that the driver keeps for itself on a GPU, as it was last read.
type reservedMemory struct {
	at  time.Time
	mib int64
}

// reservedPeriod is the time for which that memory is not read again: it changes with the driver's settings.
const reservedPeriod = time.Minute

// readReserved reads the memory that the driver keeps for itself on a GPU, unless it is known.
func (s *sampler) readReserved(gpu string, at time.Time) int64 {
	last, known := s.reserved.Load(gpu)
	if known && at.Sub(last.(reservedMemory).at).Abs() < reservedPeriod {
		return last.(reservedMemory).mib
	}
	memory, err := s.library.Memory(gpu)
	if err != nil {
		return 0
	}
	s.reserved.Store(gpu, reservedMemory{at, memory.ReservedMiB})
	return memory.ReservedMiB
}

// unattributedMemory returns the memory of the processes on a device that belong to none of the pods; nil if it
// is unknown.
func unattributedMemory(d *utilization.Device, pods map[types.UID]*sampledPod) *int64 {
	if d.ProcessesUnknown {
		return nil
	}
	var sum int64
	for i := range d.Processes {
		p := &d.Processes[i]
		if pods[p.Pod] != nil {
			continue
		}
		if p.MemoryMiB == nvml.UnknownMiB {
			return nil
		}
		sum += p.MemoryMiB
	}
	return &sum
}

// withUnassignedPods returns the pods to which the kubelet assigned devices, and those that it does not know as
// users of GPUs: pods with a share that their scheduler assigned, and pods with a finding.
func withUnassignedPods(assigned []v1alpha1.PodUsage, holders *devices.Snapshot, use *utilization.Result) []v1alpha1.PodUsage {
	if use == nil {
		return assigned
	}
	for i := range holders.Pods {
		pod := &holders.Pods[i]
		sampled, isUser := use.Pods[pod.UID]
		isFound := slices.ContainsFunc(use.Findings, func(f v1alpha1.Finding) bool { return f.PodUID == pod.UID })
		if !isUser || sampled.ShareMiB == 0 && !isFound ||
			slices.ContainsFunc(assigned, func(u v1alpha1.PodUsage) bool { return u.UID == pod.UID }) {
			continue
		}
		assigned = append(assigned, v1alpha1.PodUsage{PodReference: v1alpha1.PodReference{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}})
	}
	return assigned
}
