// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"

	"sluice.dev/gpuagent/nvml"
)

var modeCases = []testCase{
	{"the mode is stable", []Feature{supportsMIG}, modeIsStable},
	{"a mode is in force, or pending until a reset", []Feature{supportsMIG, writable}, setMode},
	{"no instances exist while MIG mode is off", []Feature{supportsMIG, writable}, noInstancesWithoutMIG},
	{"no instance can be created while MIG mode is off", []Feature{supportsMIG, writable, ModeGuards}, changesRefusedWithoutMIG},
	{"leaving MIG mode destroys the instances", []Feature{supportsMIG, writable, ModeGuards}, instancesRemovedWithMode},
}

func modeIsStable(b *fixture) {
	current, pending, err := b.MIGMode(b.gpu.UUID)
	b.requireNoError(err)
	againCurrent, againPending, err := b.MIGMode(b.gpu.UUID)
	b.requireNoError(err)
	if current != againCurrent || pending != againPending {
		b.Errorf("first %v, pending %v, then %v, pending %v", current, pending, againCurrent, againPending)
	}
}

func setMode(b *fixture) {
	for _, mode := range []nvml.Mode{nvml.Enabled, nvml.Disabled, nvml.Enabled} {
		activation, err := b.SetMIGMode(b.gpu.UUID, mode)
		b.requireNoError(err)
		current, pending, err := b.MIGMode(b.gpu.UUID)
		b.requireNoError(err)
		if pending != mode {
			b.Errorf("requested %v, but %v is pending", mode, pending)
		}
		if errors.Is(activation, nvml.ErrResetRequired) && current == mode {
			b.Errorf("the mode %v is in force, but reported to need a reset", mode)
		}
		if activation != nil && !errors.Is(activation, nvml.ErrResetRequired) {
			b.Errorf("the GPU is unused, but the activation failed: %v", activation)
		}
		b.enterMode(mode)
	}
	b.requireLayout()
}

func noInstancesWithoutMIG(b *fixture) {
	b.enterMode(nvml.Disabled)
	_, err := b.Instances(b.gpu.UUID)
	b.requireError("Instances", err, nvml.ErrNotSupported)
}

func changesRefusedWithoutMIG(b *fixture) {
	small := b.smallestPlacement(b.enableMIG())
	b.enterMode(nvml.Disabled)
	_, err := b.CreateInstance(b.gpu.UUID, small.profile.ID, small.at)
	b.requireError("CreateInstance", err, nvml.ErrNotSupported)
	_, err = b.CreateComputeInstance(b.gpu.UUID, 0)
	b.requireError("CreateComputeInstance", err, nvml.ErrNotSupported)
	b.requireError("DestroyInstance", b.DestroyInstance(b.gpu.UUID, 0), nvml.ErrNotSupported)
	b.requireError("DestroyComputeInstance", b.DestroyComputeInstance(b.gpu.UUID, 0, 0), nvml.ErrNotSupported)
}

func instancesRemovedWithMode(b *fixture) {
	b.createDevice(b.smallestPlacement(b.enableMIG()))
	b.enterMode(nvml.Disabled)
	b.enterMode(nvml.Enabled)
	b.requireLayout()
}

var resetCases = []testCase{
	{"a reset destroys the instances and keeps the mode", []Feature{supportsMIG, writable, Reset, ModeGuards}, resetRemovesInstances},
	{"a reset is refused while a process uses the GPU", []Feature{supportsMIG, writable, Reset, Processes}, resetRefusedInUse},
}

func resetRemovesInstances(b *fixture) {
	b.createDevice(b.smallestPlacement(b.enableMIG()))
	b.requireNoError(b.Reset(b.gpu.UUID))
	current, pending, err := b.MIGMode(b.gpu.UUID)
	b.requireNoError(err)
	if current != nvml.Enabled || pending != nvml.Enabled {
		b.Errorf("after a reset the mode is %v, pending %v", current, pending)
	}
	b.requireLayout()
	b.createDevice(b.smallestPlacement(b.listProfiles()))
}

func resetRefusedInUse(b *fixture) {
	made, compute := b.createDevice(b.smallestPlacement(b.enableMIG()))
	b.requireNoError(b.attach(testPID, compute.UUID, 100))
	b.requireError("Reset", b.Reset(b.gpu.UUID), nvml.ErrInUse)
	b.requireLayout(made)
	b.detach(testPID)
	b.requireNoError(b.Reset(b.gpu.UUID))
	b.requireLayout()
}
