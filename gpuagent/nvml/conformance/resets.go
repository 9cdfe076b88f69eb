// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import "sluice.dev/gpuagent/nvml"

var resets = []promise{
	{"a reset takes the instances and leaves the mode", []Feature{cutting, changing, Reset, ModeGuards}, resetClears},
	{"a reset is refused where a process has the GPU", []Feature{cutting, changing, Reset, Processes}, resetGuarded},
}

func resetClears(b *bench) {
	b.device(b.smallest(b.cut()))
	b.must(b.Reset(b.gpu.UUID))
	current, pending, err := b.MIGMode(b.gpu.UUID)
	b.must(err)
	if current != nvml.Enabled || pending != nvml.Enabled {
		b.Errorf("after a reset the mode is %v, pending %v", current, pending)
	}
	b.layout()
	b.device(b.smallest(b.profiles()))
}

func resetGuarded(b *bench) {
	made, compute := b.device(b.smallest(b.cut()))
	b.must(b.attach(pid, compute.UUID, 100))
	b.refused("Reset", b.Reset(b.gpu.UUID), nvml.ErrInUse)
	b.layout(made)
	b.detach(pid)
	b.must(b.Reset(b.gpu.UUID))
	b.layout()
}
