// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/occupancy"
	"sluice.dev/gpuagent/picture"
)

// processes are those on a GPU; what they hold is added to their instances, and an
// instance of which only a process is known gets that process's pod.
func (s *Surveyor) processes(gpu *picture.GPU, sight *occupancy.Sight, before map[uint32][]types.UID) (list []picture.Process) {
	running, err := s.Library.Processes(gpu.UUID)
	if err != nil || len(running) == 0 {
		return nil
	}
	starts := s.starts(gpu.UUID)
	for _, each := range running {
		process := picture.Process{PID: each.PID, GPU: gpu.Index, Device: "whole", Pod: s.podOf(each.PID, sight, before)}
		if each.MemoryMiB != nvml.UnknownMiB {
			process.MemoryMiB = &each.MemoryMiB
		}
		if at := find(gpu.Instances, starts, each.Instance); at != nil {
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

// starts are the first slices of a GPU's instances, by their identifiers.
func (s *Surveyor) starts(uuid string) map[uint32]int {
	starts := map[uint32]int{}
	instances, err := s.Library.Instances(uuid)
	if err != nil {
		return nil // it is not cut, or cannot be read
	}
	for _, i := range instances {
		starts[i.ID] = i.Placement.Start
	}
	return starts
}

func find(instances []picture.Instance, starts map[uint32]int, id uint32) *picture.Instance {
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

// podOf is the pod in which a process runs: by name where the node's pods are known,
// else by identity; empty where it runs in none.
func (s *Surveyor) podOf(pid uint32, sight *occupancy.Sight, before map[uint32][]types.UID) string {
	uids, known := before[pid]
	if !known {
		var err error
		if uids, err = occupancy.PodsOf(s.Proc, pid); err != nil {
			return "" // it has ended
		}
	}
	s.pods[pid] = uids
	if len(uids) == 0 {
		return ""
	}
	if pod, ok := sight.ByUID(uids...); ok {
		return pod.Namespace + "/" + pod.Name
	}
	return string(uids[len(uids)-1])
}
