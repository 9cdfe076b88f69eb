// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"

	"sluice.dev/gpuagent/nvml"
)

// Check is nil where the node is in a state that a node can be in: above all, no
// two instances overlap. Nothing that is done through the methods of a node makes it
// otherwise.
func (n *Node) Check() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return check(n.gpus)
}

func check(gpus []*gpu) error {
	indices, devices := map[int]bool{}, map[string]bool{}
	for _, g := range gpus {
		if g.index < 0 || g.index >= len(gpus) || indices[g.index] {
			return fmt.Errorf("%s: index %d: taken, or not below %d", g.uuid, g.index, len(gpus))
		}
		indices[g.index] = true
		if err := g.check(devices); err != nil {
			return fmt.Errorf("%s: %w", g.uuid, err)
		}
	}
	return nil
}

func (g *gpu) check(devices map[string]bool) error {
	if g.board == nil && (g.mode == nvml.Enabled || g.pending == nvml.Enabled) {
		return fmt.Errorf("MIG mode on an %s, which cannot be cut", g.name)
	}
	if g.mode == nvml.Disabled && len(g.instances) > 0 {
		return fmt.Errorf("%d instances without MIG mode", len(g.instances))
	}
	if g.mode == nvml.Enabled && len(g.processes) > 0 {
		return fmt.Errorf("%d processes on the whole GPU in MIG mode", len(g.processes))
	}
	if err := checkProcesses(g.processes, g.memoryMiB); err != nil {
		return err
	}
	for k, i := range g.instances {
		if err := g.checkInstance(i, g.instances[:k], devices); err != nil {
			return fmt.Errorf("instance %d: %w", i.id, err)
		}
	}
	return nil
}

// checkInstance checks one instance beside those before it.
func (g *gpu) checkInstance(i *instance, before []*instance, devices map[string]bool) error {
	rest := gpu{model: g.model, instances: before}
	if !slices.Contains(i.profile.Starts, i.start) {
		return fmt.Errorf("%s cannot lie at %d, but at %v", i.profile.Name, i.start, i.profile.Starts)
	}
	if other := rest.at(i.start, i.profile.Memory); other != nil {
		return fmt.Errorf("%s at %d overlaps instance %d", i.profile.Name, i.start, other.id)
	}
	if rest.allowed(i.profile) <= 0 {
		return fmt.Errorf("one %s too many", i.profile.Name)
	}
	if _, err := rest.instance(i.id); err == nil {
		return fmt.Errorf("another one has its identifier")
	}
	if i.compute == nil {
		return nil
	}
	if i.compute.uuid == "" || devices[i.compute.uuid] {
		return fmt.Errorf("its device's UUID %q is empty or another device's", i.compute.uuid)
	}
	devices[i.compute.uuid] = true
	if i.compute.slices < 1 || i.compute.slices > i.profile.Compute {
		return fmt.Errorf("a compute instance of %d slices on a %s", i.compute.slices, i.profile.Name)
	}
	return checkProcesses(i.compute.processes, g.migMemory(i.profile))
}

func checkProcesses(processes []process, roomMiB int64) error {
	seen := map[uint32]bool{}
	for _, p := range processes {
		if seen[p.pid] {
			return fmt.Errorf("process %d is twice on one device", p.pid)
		}
		seen[p.pid] = true
		if p.memoryMiB < nvml.UnknownMiB || p.sm < 0 || p.sm > 100 {
			return fmt.Errorf("process %d: %d MiB and %d %% are not what a process has", p.pid, p.memoryMiB, p.sm)
		}
		if roomMiB -= max(0, p.memoryMiB); roomMiB < 0 {
			return fmt.Errorf("processes have %d MiB more than there are", -roomMiB)
		}
	}
	return nil
}
