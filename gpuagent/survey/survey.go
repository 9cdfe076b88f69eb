// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/occupancy"
	"sluice.dev/gpuagent/picture"
)

// Surveyor looks at a node's GPUs.
type Surveyor struct {
	// Library is the driver.
	Library nvml.Library
	// Proc is the root of the host's procfs.
	Proc string
	// Now is machine time. Default: time.Now.
	Now func() time.Time

	// pods are those of the processes of the last survey: one that is still there is
	// not looked up again.
	pods map[uint32][]types.UID
}

// Take is the node as it is now. sight may be nil where nobody knows who has what. It
// is called by one goroutine at a time.
func (s *Surveyor) Take(observed []v1alpha1.ObservedGPU, sight *occupancy.Sight) picture.Node {
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	if sight == nil {
		sight = &occupancy.Sight{}
	}
	before := s.pods
	s.pods = map[uint32][]types.UID{}
	node := picture.Node{At: now(), GPUs: []picture.GPU{}, Processes: []picture.Process{}}
	for i := range observed {
		gpu, processes := s.gpu(&observed[i], sight, before)
		node.GPUs = append(node.GPUs, gpu)
		node.Processes = append(node.Processes, processes...)
	}
	slices.SortStableFunc(node.Processes, func(a, b picture.Process) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.PID, b.PID))
	})
	return node
}

// gpu is one GPU; of one that does not answer only what is known of it.
func (s *Surveyor) gpu(observed *v1alpha1.ObservedGPU, sight *occupancy.Sight, before map[uint32][]types.UID) (picture.GPU, []picture.Process) {
	uuid := string(observed.UUID)
	gpu := picture.GPU{
		Index: int(observed.Index), UUID: uuid, Model: observed.Model, MemoryMiB: observed.MemoryMiB,
		Health: observed.Health, Message: observed.Message, Mode: observed.MIG,
	}
	board := boardOf(observed.DeviceID)
	for i := range observed.Instances {
		gpu.Instances = append(gpu.Instances, instance(&observed.Instances[i], board))
	}
	gpu.Slices = slicesOf(&gpu, board)
	if observed.Health != v1alpha1.GPUHealthy && observed.Health != "" {
		return gpu, nil // a question that it does not answer would be waited for
	}
	for _, pod := range sight.On(uuid) {
		gpu.Pods = append(gpu.Pods, pod.Namespace+"/"+pod.Name)
	}
	if memory, err := s.Library.Memory(uuid); err == nil {
		gpu.UsedMiB = &memory.UsedMiB
	}
	if busy, err := s.Library.Utilisation(uuid); err == nil {
		gpu.Utilisation = &busy
	}
	return gpu, s.processes(&gpu, sight, before)
}

func instance(o *v1alpha1.ObservedInstance, board *mig.Board) picture.Instance {
	i := picture.Instance{
		Profile: o.Profile, Start: int(o.Start), Size: int(o.Size), UUID: o.UUID, State: o.State, Foreign: o.Foreign, Message: o.Message,
	}
	if o.Pod != nil {
		i.Pod = o.Pod.Namespace + "/" + o.Pod.Name
	}
	if board != nil {
		if profile, err := board.Named(o.Profile); err == nil {
			i.MemoryMiB = profile.MemoryMiB
		}
	}
	return i
}

// boardOf is the kind of a GPU by its identifier in the GPUNode: 0x20B010DE.
func boardOf(device string) *mig.Board {
	var id uint32
	if _, err := fmt.Sscanf(device, "0x%x", &id); err != nil {
		return nil
	}
	board, _ := mig.BoardOf(id)
	return board
}

// slicesOf is how many memory slices a GPU has: of one that nobody knows as many as
// are seen, and 8 at least, as all such boards have by now.
func slicesOf(gpu *picture.GPU, board *mig.Board) int {
	if board != nil {
		return board.Slices
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
