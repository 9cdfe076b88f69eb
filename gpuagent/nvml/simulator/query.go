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
func (p *program) GPUs() ([]nvml.GPU, error) {
	n := p.node
	return ask(p, Call{Method: "GPUs"}, func() ([]nvml.GPU, error) {
		var list []nvml.GPU
		for _, g := range n.gpus {
			switch {
			case g.gone:
			case g.lost:
				list = append(list, nvml.GPU{UUID: g.uuid, Index: g.index, Err: refuse(nvml.ErrGPULost, "%s", g.uuid)})
			default:
				list = append(list, nvml.GPU{UUID: g.uuid, Index: g.index, Name: g.name, PCIDevice: uint32(g.device)<<16 | 0x10de, MemoryMiB: g.memoryMiB})
			}
		}
		slices.SortFunc(list, func(a, b nvml.GPU) int { return cmp.Compare(a.Index, b.Index) })
		if n.order == None {
			shuffle(n.chance, list)
		}
		return list, nil
	})
}

// Memory implements [nvml.Library].
func (p *program) Memory(gpu string) (nvml.Memory, error) {
	return ask(p, Call{Method: "Memory", GPU: gpu}, func() (nvml.Memory, error) {
		g, err := p.node.gpu(gpu)
		if err != nil {
			return nvml.Memory{}, err
		}
		memory := nvml.Memory{TotalMiB: g.memoryMiB}
		for _, it := range g.everybody() {
			memory.UsedMiB += max(0, it.MemoryMiB)
		}
		return memory, nil
	})
}

// Utilisation implements [nvml.Library].
func (p *program) Utilisation(gpu string) (int, error) {
	return ask(p, Call{Method: "Utilisation", GPU: gpu}, func() (int, error) {
		g, err := p.node.whole(gpu)
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
func (p *program) Processes(gpu string) ([]nvml.Process, error) {
	n := p.node
	return ask(p, Call{Method: "Processes", GPU: gpu}, func() ([]nvml.Process, error) {
		g, err := n.gpu(gpu)
		if err != nil {
			return nil, err
		}
		return inAnyOrder(n, g.everybody()), nil
	})
}

// ProcessUtilisation implements [nvml.Library].
func (p *program) ProcessUtilisation(gpu string, since time.Time) ([]nvml.ProcessSample, error) {
	n := p.node
	return ask(p, Call{Method: "ProcessUtilisation", GPU: gpu}, func() ([]nvml.ProcessSample, error) {
		g, err := n.whole(gpu)
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
		return inAnyOrder(n, samples), nil
	})
}

// everybody are the processes on a GPU, on its instances in turn.
func (g *gpu) everybody() []nvml.Process {
	var list []nvml.Process
	for _, it := range g.processes {
		list = append(list, nvml.Process{PID: it.pid, MemoryMiB: it.memoryMiB, Instance: nvml.NoInstance, Compute: nvml.NoInstance})
	}
	for _, i := range g.instances {
		if i.compute == nil {
			continue
		}
		for _, it := range i.compute.processes {
			list = append(list, nvml.Process{PID: it.pid, MemoryMiB: it.memoryMiB, Instance: i.id, Compute: i.compute.id})
		}
	}
	return list
}

// inAnyOrder is a list for which the driver promises no order.
func inAnyOrder[T any](n *Node, list []T) []T {
	if n.order != Steady {
		shuffle(n.chance, list)
	}
	return list
}

// gpu is the one of that UUID.
func (n *Node) gpu(uuid string) (*gpu, error) {
	for _, g := range n.gpus {
		if g.uuid != uuid || g.gone {
			continue
		}
		if g.lost {
			return nil, refuse(nvml.ErrGPULost, "%s", uuid)
		}
		return g, nil
	}
	return nil, refuse(nvml.ErrNotFound, "no GPU %q", uuid)
}

// whole is the GPU where it is not cut.
func (n *Node) whole(uuid string) (*gpu, error) {
	g, err := n.gpu(uuid)
	if err == nil && g.mode == nvml.Enabled {
		return nil, refuse(nvml.ErrNotSupported, "%s is in MIG mode", uuid)
	}
	return g, err
}

// cuttable is the GPU where its kind can be cut.
func (n *Node) cuttable(uuid string) (*gpu, error) {
	g, err := n.gpu(uuid)
	if err == nil && g.board == nil {
		return nil, refuse(nvml.ErrNotSupported, "%s is an %s, which cannot be cut", uuid, g.name)
	}
	return g, err
}

// cut is the GPU where it is in MIG mode and the program may ask for its instances.
func (n *Node) cut(uuid string) (*gpu, error) {
	g, err := n.cuttable(uuid)
	switch {
	case err != nil:
		return nil, err
	case n.denied:
		return nil, refuse(nvml.ErrNoPermission, "no access to mig/config")
	case g.mode != nvml.Enabled:
		return nil, refuse(nvml.ErrNotSupported, "%s is not in MIG mode", uuid)
	default:
		return g, nil
	}
}
