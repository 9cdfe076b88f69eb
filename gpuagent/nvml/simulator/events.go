// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"

	"sluice.dev/gpuagent/nvml"
)

// Attach attaches a process to a device by UUID: a GPU without MIG mode, or a MIG device. The
// process uses the given memory in MiB ([nvml.UnknownMiB] hides it from the driver) and utilization
// in percent. For the same process and device Attach replaces both. It returns ErrNotFound without
// such a device, ErrInvalidArgument for a GPU in MIG mode or an invalid number,
// ErrInsufficientResources without enough memory, and ErrGPULost.
func (n *Node) Attach(pid uint32, device string, memoryMiB int64, smPercent int) error {
	if memoryMiB < nvml.UnknownMiB || smPercent < 0 || smPercent > 100 {
		return errorf(nvml.ErrInvalidArgument, "attach %d: %d MiB and %d %% are not possible for a process", pid, memoryMiB, smPercent)
	}
	return n.tryUpdate(func() error {
		processes, room, err := n.deviceProcesses(device)
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(slices.Clone(*processes), func(p process) bool { return p.pid == pid })
		for _, p := range others {
			room -= max(0, p.memoryMiB)
		}
		if memoryMiB > room {
			return errorf(nvml.ErrInsufficientResources, "attach %d: %d MiB on %s, which has %d MiB left", pid, memoryMiB, device, room)
		}
		*processes = append(others, process{pid, memoryMiB, smPercent})
		return nil
	})
}

// Detach removes a process from all devices.
func (n *Node) Detach(pid uint32) {
	n.update(func() {
		for processes := range n.allProcessLists {
			*processes = slices.DeleteFunc(*processes, func(p process) bool { return p.pid == pid })
		}
	})
}

// PIDs returns the attached processes, the lowest first.
func (n *Node) PIDs() []uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	var pids []uint32
	for processes := range n.allProcessLists {
		for _, p := range *processes {
			pids = append(pids, p.pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// CreatePartialComputeInstance creates a compute instance with fewer slices than its GPU instance,
// as another program might, and returns its device: 1c.3g.20gb. The GPU instance must have none.
func (n *Node) CreatePartialComputeInstance(uuid string, id uint32, slices int) (device string, err error) {
	err = n.tryUpdate(func() error {
		g, err := n.writableGPU(uuid)
		if err != nil {
			return err
		}
		i, err := g.instanceByID(id)
		switch {
		case err != nil:
			return err
		case i.computeInstance != nil:
			return errorf(nvml.ErrInsufficientResources, "instance %d of %s has its compute instance", id, uuid)
		case slices < 1 || slices >= i.profile.Compute:
			return errorf(nvml.ErrInvalidArgument, "%d compute slices are no part of a %s", slices, i.profile.Name)
		}
		device = n.newDeviceUUID(g, i)
		i.computeInstance = &computeInstance{uuid: device, slices: slices}
		return nil
	})
	return device, err
}

// Hold sets whether a program that is not among the processes has a GPU open, as a monitoring
// daemon does. The GPU's MIG mode then cannot change, and it cannot be reset.
func (n *Node) Hold(uuid string, held bool) error {
	return n.updateGPU(uuid, func(g *gpu) { g.held = held })
}

// RequireReset makes a GPU need a reset before its instances can change.
func (n *Node) RequireReset(uuid string) error {
	return n.updateGPU(uuid, func(g *gpu) { g.needsReset = true })
}

// Lose makes the driver lose contact to a GPU until the next boot.
func (n *Node) Lose(uuid string) error { return n.updateGPU(uuid, func(g *gpu) { g.lost = true }) }

// Vanish removes a GPU from the driver's list until the next boot.
func (n *Node) Vanish(uuid string) error {
	return n.updateGPU(uuid, func(g *gpu) { g.vanished = true })
}

// Deny sets whether programs lack the permission to read and change instances.
func (n *Node) Deny(denied bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.denied = denied
}

// Unload unloads the driver until [Node.Load]: Init returns the given error
// ([nvml.ErrDriverNotLoaded], [nvml.ErrLibraryNotFound]), every other call ErrUninitialized. The
// layout stays.
func (n *Node) Unload(as nvml.Error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.initErr = as
	n.generation++
}

// Load loads the driver again. Programs have to call Init again.
func (n *Node) Load() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.initErr = nil
}

// Boot reboots the node. It removes all layouts, processes and holds, restores lost GPUs, may
// change indices, and every program has to call Init again. The MIG mode becomes the pending one;
// from Hopper on it is off after a boot.
func (n *Node) Boot() {
	n.update(func() {
		n.generation++
		for _, g := range n.gpus {
			g.applyReset()
			g.held, g.lost, g.vanished = false, false, false
			if g.migModel != nil && g.migModel.ModeWithoutReset {
				g.mode, g.pending = nvml.Disabled, nvml.Disabled
			}
		}
		n.shuffleIndices()
	})
}

// updateGPU changes one GPU in any state.
func (n *Node) updateGPU(uuid string, change func(*gpu)) error {
	return n.tryUpdate(func() error {
		for _, g := range n.gpus {
			if g.uuid == uuid {
				change(g)
				return nil
			}
		}
		return errorf(nvml.ErrNotFound, "no GPU %q", uuid)
	})
}

func (n *Node) update(change func()) { _ = n.tryUpdate(func() error { change(); return nil }) }

// tryUpdate simulates an event and runs the hook.
func (n *Node) tryUpdate(what func() error) error {
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

// deviceProcesses returns the processes of a device and the device's memory.
func (n *Node) deviceProcesses(uuid string) (*[]process, int64, error) {
	for _, g := range n.gpus {
		if g.uuid == uuid {
			it, err := n.gpuByUUID(uuid)
			if err != nil {
				return nil, 0, err
			}
			if it.mode == nvml.Enabled {
				return nil, 0, errorf(nvml.ErrInvalidArgument, "%s is in MIG mode: processes are on its MIG devices", uuid)
			}
			return &g.processes, g.memoryMiB, nil
		}
		for _, i := range g.instances {
			if i.computeInstance != nil && i.computeInstance.uuid == uuid {
				_, err := n.gpuByUUID(g.uuid)
				return &i.computeInstance.processes, g.instanceMemory(i.profile), err
			}
		}
	}
	return nil, 0, errorf(nvml.ErrNotFound, "no device %q", uuid)
}

// allProcessLists returns the process lists of all devices.
func (n *Node) allProcessLists(yield func(*[]process) bool) {
	for _, g := range n.gpus {
		if !yield(&g.processes) {
			return
		}
		for _, i := range g.instances {
			if i.computeInstance != nil && !yield(&i.computeInstance.processes) {
				return
			}
		}
	}
}
