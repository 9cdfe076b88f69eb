// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// Inventory collects the state of a node's GPUs.
type Inventory struct {
	// Library is the driver.
	Library nvml.Library
	// Running returns the processes on a GPU, and the first slices of its instances by identifier.
	Running func(gpu string) (processes []nvml.Process, starts map[uint32]int)
	// ProcessOwner returns the UIDs of the pods in which a process runs, the outermost first, and outside of
	// pods its description, or nil if it is unknown.
	ProcessOwner func(pid uint32) ([]types.UID, *v1alpha1.OtherProcess, error)
	// Now returns machine time. Default: time.Now.
	Now func() time.Time
}

// Observe returns the node's current state. It omits what cannot be read; holders may be nil if
// unknown. One goroutine may call it at a time.
func (s *Inventory) Observe(observed []v1alpha1.ObservedGPU, holders *devices.Snapshot) Node {
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	if holders == nil {
		holders = &devices.Snapshot{}
	}
	node := Node{ObservedAt: now(), GPUs: []GPU{}, Processes: []Process{}}
	for i := range observed {
		gpu, processes := s.gpuStatus(&observed[i], holders)
		node.GPUs = append(node.GPUs, gpu)
		node.Processes = append(node.Processes, processes...)
	}
	slices.SortStableFunc(node.Processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.PID, b.PID))
	})
	return node
}

// gpuStatus returns one GPU. For a GPU that does not answer it makes no driver calls.
func (s *Inventory) gpuStatus(observed *v1alpha1.ObservedGPU, holders *devices.Snapshot) (GPU, []Process) {
	uuid := string(observed.UUID)
	gpu := GPU{
		Index: int(observed.Index), UUID: uuid, Model: observed.Model, MemoryMiB: observed.MemoryMiB,
		Health: observed.Health, Message: observed.Message, Mode: observed.MIG,
	}
	model := mig.ObservedModel(observed)
	for i := range observed.Instances {
		gpu.Instances = append(gpu.Instances, newInstanceStatus(&observed.Instances[i], model))
	}
	gpu.Slices = sliceCount(&gpu, model)
	if observed.Health != v1alpha1.GPUHealthy && observed.Health != "" {
		return gpu, nil // A call to it may block.
	}
	for _, pod := range holders.PodsOnDevice(uuid) {
		gpu.Pods = append(gpu.Pods, pod.Namespace+"/"+pod.Name)
	}
	if memory, err := s.Library.Memory(uuid); err == nil {
		gpu.UsedMiB = &memory.UsedMiB
	}
	if observed.MIG.Current != v1alpha1.MIGModeEnabled {
		if busy, err := s.Library.Utilization(uuid); err == nil {
			gpu.Utilization = &busy
		}
	}
	return gpu, s.processesOn(&gpu, holders)
}

func newInstanceStatus(o *v1alpha1.ObservedInstance, model *mig.Model) Instance {
	i := Instance{
		Profile: o.Profile, Start: int(o.Start), Size: int(o.Size), UUID: o.UUID, State: o.State, Foreign: o.Foreign, Message: o.Message,
	}
	if o.Pod != nil {
		i.Pod = o.Pod.Namespace + "/" + o.Pod.Name
	}
	if model != nil {
		if profile, err := model.Profile(o.Profile); err == nil {
			i.MemoryMiB = profile.MemoryMiB
		}
	}
	return i
}

// sliceCount returns the number of memory slices. For an unknown GPU model it is the highest
// observed one, and at least 8.
func sliceCount(gpu *GPU, model *mig.Model) int {
	if model != nil {
		return model.Slices
	}
	if gpu.Mode.Current != v1alpha1.MIGModeEnabled {
		return 0
	}
	most := 8
	for _, i := range gpu.Instances {
		most = max(most, i.Start+i.Size)
	}
	return most
}

// processesOn returns the processes on a GPU. It adds their memory to their instances, and their
// pods to instances without one.
func (s *Inventory) processesOn(gpu *GPU, holders *devices.Snapshot) (list []Process) {
	running, starts := s.Running(gpu.UUID)
	for _, each := range running {
		process := Process{PID: each.PID, GPU: gpu.Index, Device: "whole"}
		process.Pod, process.Other = s.ownerOfProcess(each.PID, holders)
		if each.MemoryMiB != nvml.UnknownMiB {
			process.MemoryMiB = &each.MemoryMiB
		}
		if at := findInstance(gpu.Instances, starts, each.Instance); at != nil {
			process.Device = fmt.Sprintf("%s@%d", at.Profile, at.Start)
			if process.MemoryMiB != nil {
				at.UsedMiB += each.MemoryMiB
			}
			if at.Pod == "" {
				at.Pod = process.Pod
			}
		}
		list = append(list, process)
	}
	return list
}

func findInstance(instances []Instance, starts map[uint32]int, id uint32) *Instance {
	start, ok := starts[id]
	if !ok {
		return nil
	}
	for i := range instances {
		if instances[i].Start == start {
			return &instances[i]
		}
	}
	return nil
}

// ownerOfProcess returns the pod of a process: its name, or its UID if the name is unknown. Outside of pods it
// returns the description of the process; nil if it is unknown, or the process ended.
func (s *Inventory) ownerOfProcess(pid uint32, holders *devices.Snapshot) (pod string, other *v1alpha1.OtherProcess) {
	uids, other, err := s.ProcessOwner(pid)
	if err != nil || len(uids) == 0 {
		return "", other
	}
	if pod, ok := holders.PodByUID(uids...); ok {
		return pod.Namespace + "/" + pod.Name, nil
	}
	return string(uids[len(uids)-1]), nil
}
