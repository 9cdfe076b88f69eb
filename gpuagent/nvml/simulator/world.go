// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"

	"sluice.dev/gpuagent/nvml"
)

// Attach puts a process onto a device: a GPU that is not cut, or a MIG device, by its
// UUID. It has so much memory there, in MiB ([nvml.UnknownMiB] where the driver
// is not to know), and keeps it so busy, in percent; again for the same process and device, it
// replaces both. ErrNotFound where there is no such device, ErrInvalidArgument where
// the GPU is cut or a figure is wrong, ErrInsufficientResources where the memory is
// not there, ErrGPULost.
func (n *Node) Attach(pid uint32, device string, memoryMiB int64, smPercent int) error {
	if memoryMiB < nvml.UnknownMiB || smPercent < 0 || smPercent > 100 {
		return refuse(nvml.ErrInvalidArgument, "attach %d: %d MiB and %d %% are not what a process has", pid, memoryMiB, smPercent)
	}
	return n.happen(func() error {
		processes, room, err := n.device(device)
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(slices.Clone(*processes), func(p process) bool { return p.pid == pid })
		for _, p := range others {
			room -= max(0, p.memoryMiB)
		}
		if memoryMiB > room {
			return refuse(nvml.ErrInsufficientResources, "attach %d: %d MiB on %s, which has %d MiB left", pid, memoryMiB, device, room)
		}
		*processes = append(others, process{pid, memoryMiB, smPercent})
		return nil
	})
}

// Detach takes a process off all devices; it need not be on one.
func (n *Node) Detach(pid uint32) {
	n.do(func() {
		for processes := range n.everywhere {
			*processes = slices.DeleteFunc(*processes, func(p process) bool { return p.pid == pid })
		}
	})
}

// PIDs are the processes that are attached, the lowest first.
func (n *Node) PIDs() []uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	var pids []uint32
	for processes := range n.everywhere {
		for _, p := range *processes {
			pids = append(pids, p.pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// Part makes a compute instance of fewer slices than its GPU instance has, as somebody
// else would, and returns its device: 1c.3g.20gb. The GPU instance has none yet.
func (n *Node) Part(uuid string, id uint32, slices int) (device string, err error) {
	err = n.happen(func() error {
		g, err := n.changeable(uuid)
		if err != nil {
			return err
		}
		i, err := g.instance(id)
		switch {
		case err != nil:
			return err
		case i.compute != nil:
			return refuse(nvml.ErrInsufficientResources, "instance %d of %s has its compute instance", id, uuid)
		case slices < 1 || slices >= i.profile.Compute:
			return refuse(nvml.ErrInvalidArgument, "%d compute slices are no part of a %s", slices, i.profile.Name)
		}
		device = n.mint(g, i)
		i.compute = &compute{uuid: device, slices: slices}
		return nil
	})
	return device, err
}

// Hold says whether somebody who is not among its processes has a GPU open, as a
// monitoring daemon does: its MIG mode does not change then, nor can it be reset.
func (n *Node) Hold(uuid string, held bool) error {
	return n.touch(uuid, func(g *gpu) { g.held = held })
}

// Spoil makes a GPU one that has to be reset: its instances cannot be changed before.
func (n *Node) Spoil(uuid string) error { return n.touch(uuid, func(g *gpu) { g.spoiled = true }) }

// Lose makes a GPU one that the driver counts and cannot reach, until the next boot.
func (n *Node) Lose(uuid string) error { return n.touch(uuid, func(g *gpu) { g.lost = true }) }

// Vanish makes a GPU one that the driver does not count any more, until the next boot.
func (n *Node) Vanish(uuid string) error { return n.touch(uuid, func(g *gpu) { g.gone = true }) }

// Deny says whether programs lack the permission to see and change instances.
func (n *Node) Deny(denied bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.denied = denied
}

// Unload takes the driver away: Init fails so ([nvml.ErrDriverNotLoaded],
// [nvml.ErrLibraryNotFound]), and every other call with ErrUninitialized, until
// [Node.Load]. The layout stays.
func (n *Node) Unload(as nvml.Error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.missing = as
	n.lives++
}

// Load brings the driver back. Programs have to call Init again.
func (n *Node) Load() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.missing = nil
}

// Boot boots the node. All layouts, processes and holds are gone, lost GPUs are back,
// indices may differ, and every program has to call Init again. The MIG mode is
// what was pending, except that from Hopper on no mode outlives a boot: it is off.
func (n *Node) Boot() {
	n.do(func() {
		n.lives++
		for _, g := range n.gpus {
			g.reset()
			g.held, g.lost, g.gone = false, false, false
			if g.board != nil && g.board.ModeAtOnce {
				g.mode, g.pending = nvml.Disabled, nvml.Disabled
			}
		}
		n.reindex()
	})
}

// touch changes one GPU, in whatever state it is.
func (n *Node) touch(uuid string, change func(*gpu)) error {
	return n.happen(func() error {
		for _, g := range n.gpus {
			if g.uuid == uuid {
				change(g)
				return nil
			}
		}
		return refuse(nvml.ErrNotFound, "no GPU %q", uuid)
	})
}

func (n *Node) do(change func()) { _ = n.happen(func() error { change(); return nil }) }

// happen carries out what happens to the node, and tells of it.
func (n *Node) happen(what func() error) error {
	n.mu.Lock()
	changed := n.hooks.Changed
	err := what()
	if err == nil {
		n.changes++
	}
	n.mu.Unlock()
	if err == nil && changed != nil {
		changed()
	}
	return err
}

// device are the processes of a device, and how much memory it has.
func (n *Node) device(uuid string) (*[]process, int64, error) {
	for _, g := range n.gpus {
		if g.uuid == uuid {
			it, err := n.gpu(uuid)
			if err != nil {
				return nil, 0, err
			}
			if it.mode == nvml.Enabled {
				return nil, 0, refuse(nvml.ErrInvalidArgument, "%s is in MIG mode: processes are on its MIG devices", uuid)
			}
			return &g.processes, g.memoryMiB, nil
		}
		for _, i := range g.instances {
			if i.compute != nil && i.compute.uuid == uuid {
				_, err := n.gpu(g.uuid)
				return &i.compute.processes, g.migMemory(i.profile), err
			}
		}
	}
	return nil, 0, refuse(nvml.ErrNotFound, "no device %q", uuid)
}

// everywhere are the processes of each device.
func (n *Node) everywhere(yield func(*[]process) bool) {
	for _, g := range n.gpus {
		if !yield(&g.processes) {
			return
		}
		for _, i := range g.instances {
			if i.compute != nil && !yield(&i.compute.processes) {
				return
			}
		}
	}
}
