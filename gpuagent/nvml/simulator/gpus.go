// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"slices"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// GPUs implements [nvml.Library].
func (p *session) GPUs() ([]nvml.GPU, error) {
	n := p.node
	return simulate(p, Call{Method: "GPUs"}, func() ([]nvml.GPU, error) {
		var list []nvml.GPU
		for _, g := range n.gpus {
			switch {
			case g.vanished:
			case g.lost:
				list = append(list, nvml.GPU{UUID: g.uuid, Index: g.index, Err: errorf(nvml.ErrGPULost, "%s", g.uuid)})
			default:
				list = append(list, nvml.GPU{
					UUID: g.uuid, Index: g.index, Name: g.name, PCIDevice: uint32(g.device)<<16 | 0x10de,
					MemoryMiB: g.memoryMiB,
				})
			}
		}
		slices.SortFunc(list, func(a, b nvml.GPU) int { return cmp.Compare(a.Index, b.Index) })
		if n.order == NoOrder {
			shuffle(n.random, list)
		}
		return list, nil
	})
}

// Memory implements [nvml.Library].
func (p *session) Memory(gpu string) (nvml.Memory, error) {
	return simulate(p, Call{Method: "Memory", GPU: gpu}, func() (nvml.Memory, error) {
		g, err := p.node.gpuByUUID(gpu)
		if err != nil {
			return nvml.Memory{}, err
		}
		memory := nvml.Memory{TotalMiB: g.memoryMiB}
		for _, it := range g.allProcesses() {
			memory.UsedMiB += max(0, it.MemoryMiB)
		}
		return memory, nil
	})
}

// Utilization implements [nvml.Library].
func (p *session) Utilization(gpu string) (int, error) {
	return simulate(p, Call{Method: "Utilization", GPU: gpu}, func() (int, error) {
		g, err := p.node.wholeGPU(gpu)
		if err != nil {
			return 0, err
		}
		busy := 0
		for _, it := range g.processes {
			busy += it.sm
		}
		return min(100, busy), nil
	})
}

// Processes implements [nvml.Library].
func (p *session) Processes(gpu string) ([]nvml.Process, error) {
	n := p.node
	return simulate(p, Call{Method: "Processes", GPU: gpu}, func() ([]nvml.Process, error) {
		g, err := n.gpuByUUID(gpu)
		if err != nil {
			return nil, err
		}
		return unordered(n, g.allProcesses()), nil
	})
}

// ProcessUtilization implements [nvml.Library].
func (p *session) ProcessUtilization(gpu string, since time.Time) ([]nvml.ProcessSample, error) {
	n := p.node
	return simulate(p, Call{Method: "ProcessUtilization", GPU: gpu}, func() ([]nvml.ProcessSample, error) {
		g, err := n.wholeGPU(gpu)
		if err != nil {
			return nil, err
		}
		var samples []nvml.ProcessSample
		now := n.clock.Now()
		for _, it := range g.processes {
			if it.sm > 0 && now.After(since) {
				samples = append(samples, nvml.ProcessSample{PID: it.pid, At: now, SM: it.sm})
			}
		}
		return unordered(n, samples), nil
	})
}

// minSampleInterval is the shortest time between two samples of an instance's utilization.
const minSampleInterval = 100 * time.Millisecond

// InstanceUtilization implements [nvml.Library]. All programs share the samples.
func (p *session) InstanceUtilization(gpu string, instance uint32) (int, error) {
	n := p.node
	return simulate(p, Call{Method: "InstanceUtilization", GPU: gpu, Instance: instance}, func() (int, error) {
		g, err := n.migEnabledGPU(gpu)
		if err != nil {
			return 0, err
		}
		if !g.migModel.ModeWithoutReset {
			return 0, errorf(nvml.ErrNotSupported, "%s is an %s, which is older than Hopper", gpu, g.name)
		}
		it, err := g.instanceByID(instance)
		if err != nil {
			return 0, err
		}
		now, last := n.clock.Now(), it.sampledAt
		if !last.IsZero() && now.Sub(last) < minSampleInterval {
			return nvml.UnknownPercent, nil
		}
		it.sampledAt = now
		if last.IsZero() {
			return nvml.UnknownPercent, nil
		}
		busy := 0
		if it.computeInstance != nil {
			for _, process := range it.computeInstance.processes {
				busy += process.sm
			}
		}
		return min(100, busy), nil
	})
}

// allProcesses returns the processes on a GPU and its instances.
func (g *gpu) allProcesses() []nvml.Process {
	var list []nvml.Process
	for _, it := range g.processes {
		list = append(list, nvml.Process{PID: it.pid, MemoryMiB: it.memoryMiB, Instance: nvml.NoInstance, Compute: nvml.NoInstance})
	}
	for _, i := range g.instances {
		if i.computeInstance == nil {
			continue
		}
		for _, it := range i.computeInstance.processes {
			list = append(list, nvml.Process{PID: it.pid, MemoryMiB: it.memoryMiB, Instance: i.id, Compute: i.computeInstance.id})
		}
	}
	return list
}

// unordered shuffles a list without a guaranteed order.
func unordered[T any](n *Node, list []T) []T {
	if n.order != StableOrder {
		shuffle(n.random, list)
	}
	return list
}

// gpuByUUID returns the GPU with a UUID.
func (n *Node) gpuByUUID(uuid string) (*gpu, error) {
	for _, g := range n.gpus {
		if g.uuid != uuid || g.vanished {
			continue
		}
		if g.lost {
			return nil, errorf(nvml.ErrGPULost, "%s", uuid)
		}
		return g, nil
	}
	return nil, errorf(nvml.ErrNotFound, "no GPU %q", uuid)
}

// wholeGPU returns the GPU if MIG mode is off.
func (n *Node) wholeGPU(uuid string) (*gpu, error) {
	g, err := n.gpuByUUID(uuid)
	if err == nil && g.mode == nvml.Enabled {
		return nil, errorf(nvml.ErrNotSupported, "%s is in MIG mode", uuid)
	}
	return g, err
}

// migCapableGPU returns the GPU if its model supports MIG.
func (n *Node) migCapableGPU(uuid string) (*gpu, error) {
	g, err := n.gpuByUUID(uuid)
	if err == nil && g.migModel == nil {
		return nil, errorf(nvml.ErrNotSupported, "%s is an %s, which does not support MIG", uuid, g.name)
	}
	return g, err
}

// migEnabledGPU returns the GPU if it is in MIG mode and the program may read its instances.
func (n *Node) migEnabledGPU(uuid string) (*gpu, error) {
	g, err := n.migCapableGPU(uuid)
	switch {
	case err != nil:
		return nil, err
	case n.denied:
		return nil, errorf(nvml.ErrNoPermission, "no access to mig/config")
	case g.mode != nvml.Enabled:
		return nil, errorf(nvml.ErrNotSupported, "%s is not in MIG mode", uuid)
	default:
		return g, nil
	}
}
