// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"errors"
	"fmt"
	"slices"

	"sluice.dev/gpuagent/nvml"
)

// Check returns nil for a possible state of the node: above all, no two instances overlap. No
// method of the node leads to an impossible one.
func (n *Node) Check() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return validateGPUs(n.gpus)
}

func validateGPUs(gpus []*gpu) error {
	indices, devices := map[int]bool{}, map[string]bool{}
	for _, g := range gpus {
		if g.index < 0 || g.index >= len(gpus) || indices[g.index] {
			return fmt.Errorf("%s: index %d is in use, or not below %d", g.uuid, g.index, len(gpus))
		}
		indices[g.index] = true
		if err := g.validate(devices); err != nil {
			return fmt.Errorf("%s: %w", g.uuid, err)
		}
	}
	return nil
}

func (g *gpu) validate(devices map[string]bool) error {
	if g.migModel == nil && (g.mode == nvml.Enabled || g.pending == nvml.Enabled) {
		return fmt.Errorf("MIG mode on an %s, which does not support MIG", g.name)
	}
	if g.mode == nvml.Disabled && len(g.instances) > 0 {
		return fmt.Errorf("%d instances without MIG mode", len(g.instances))
	}
	if g.mode == nvml.Enabled && len(g.processes) > 0 {
		return fmt.Errorf("%d processes on the whole GPU in MIG mode", len(g.processes))
	}
	if err := validateProcesses(g.processes, g.memoryMiB); err != nil {
		return err
	}
	for k, i := range g.instances {
		if err := g.validateInstance(i, g.instances[:k], devices); err != nil {
			return fmt.Errorf("instance %d: %w", i.id, err)
		}
	}
	return nil
}

// validateInstance checks one instance against those before it.
func (g *gpu) validateInstance(i *instance, before []*instance, devices map[string]bool) error {
	rest := gpu{modelSpec: g.modelSpec, instances: before}
	if !slices.Contains(i.profile.Starts, i.start) {
		return fmt.Errorf("%s cannot start at %d, only at %v", i.profile.Name, i.start, i.profile.Starts)
	}
	if other := rest.instanceAt(i.start, i.profile.Memory); other != nil {
		return fmt.Errorf("%s at %d overlaps instance %d", i.profile.Name, i.start, other.id)
	}
	if rest.remainingAllowed(i.profile) <= 0 {
		return fmt.Errorf("one %s too many", i.profile.Name)
	}
	if _, err := rest.instanceByID(i.id); err == nil {
		return errors.New("another instance has its identifier")
	}
	if i.computeInstance == nil {
		return nil
	}
	if i.computeInstance.uuid == "" || devices[i.computeInstance.uuid] {
		return fmt.Errorf("its device's UUID %q is empty or another device's", i.computeInstance.uuid)
	}
	devices[i.computeInstance.uuid] = true
	if i.computeInstance.slices < 1 || i.computeInstance.slices > i.profile.Compute {
		return fmt.Errorf("a compute instance of %d slices on a %s", i.computeInstance.slices, i.profile.Name)
	}
	return validateProcesses(i.computeInstance.processes, g.instanceMemory(i.profile))
}

func validateProcesses(processes []process, roomMiB int64) error {
	seen := map[uint32]bool{}
	for _, p := range processes {
		if seen[p.pid] {
			return fmt.Errorf("process %d is listed twice on one device", p.pid)
		}
		seen[p.pid] = true
		if p.memoryMiB < nvml.UnknownMiB || p.sm < 0 || p.sm > 100 {
			return fmt.Errorf("process %d: %d MiB and %d %% are not possible for a process", p.pid, p.memoryMiB, p.sm)
		}
		if roomMiB -= max(0, p.memoryMiB); roomMiB < 0 {
			return fmt.Errorf("processes use %d MiB more than the device has", -roomMiB)
		}
	}
	return nil
}
