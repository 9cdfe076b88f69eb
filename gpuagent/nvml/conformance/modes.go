// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"

	"sluice.dev/gpuagent/nvml"
)

var modes = []promise{
	{"the mode reads the same twice", []Feature{cutting}, modeReads},
	{"a mode is in force, or pending until a reset", []Feature{cutting, changing}, modeIsTaken},
	{"there are no instances while MIG mode is off", []Feature{cutting, changing}, nothingWhileOff},
	{"no instance is made while MIG mode is off", []Feature{cutting, changing, ModeGuards}, refusedWhileOff},
	{"instances are gone when the mode is", []Feature{cutting, changing, ModeGuards}, goneWithMode},
}

func modeReads(b *bench) {
	current, pending, err := b.MIGMode(b.gpu.UUID)
	b.must(err)
	againCurrent, againPending, err := b.MIGMode(b.gpu.UUID)
	b.must(err)
	if current != againCurrent || pending != againPending {
		b.Errorf("first %v, pending %v, then %v, pending %v", current, pending, againCurrent, againPending)
	}
}

func modeIsTaken(b *bench) {
	for _, mode := range []nvml.Mode{nvml.Enabled, nvml.Disabled, nvml.Enabled} {
		activation, err := b.SetMIGMode(b.gpu.UUID, mode)
		b.must(err)
		current, pending, err := b.MIGMode(b.gpu.UUID)
		b.must(err)
		if pending != mode {
			b.Errorf("%v was asked for, %v is pending", mode, pending)
		}
		if errors.Is(activation, nvml.ErrResetRequired) && current == mode {
			b.Errorf("the mode %v is in force, and is said to need a reset", mode)
		}
		if activation != nil && !errors.Is(activation, nvml.ErrResetRequired) {
			b.Errorf("nobody has the GPU, and what became of the mode is %v", activation)
		}
		b.into(mode)
	}
	b.layout()
}

func nothingWhileOff(b *bench) {
	b.into(nvml.Disabled)
	_, err := b.Instances(b.gpu.UUID)
	b.refused("Instances", err, nvml.ErrNotSupported)
}

func refusedWhileOff(b *bench) {
	small := b.smallest(b.cut())
	b.into(nvml.Disabled)
	_, err := b.CreateInstance(b.gpu.UUID, small.profile.ID, small.at)
	b.refused("CreateInstance", err, nvml.ErrNotSupported)
	_, err = b.CreateComputeInstance(b.gpu.UUID, 0)
	b.refused("CreateComputeInstance", err, nvml.ErrNotSupported)
	b.refused("DestroyInstance", b.DestroyInstance(b.gpu.UUID, 0), nvml.ErrNotSupported)
	b.refused("DestroyComputeInstance", b.DestroyComputeInstance(b.gpu.UUID, 0, 0), nvml.ErrNotSupported)
}

func goneWithMode(b *bench) {
	b.device(b.smallest(b.cut()))
	b.into(nvml.Disabled)
	b.into(nvml.Enabled)
	b.layout()
}
