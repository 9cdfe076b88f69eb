// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"time"

	"sluice.dev/gpuagent/nvml"
)

var busy = []promise{
	{"a process is seen on its GPU, with its memory", []Feature{changing, Processes}, processOnGPU},
	{"a process is seen on its instance", []Feature{cutting, changing, Processes}, processOnInstance},
	{"a process on two instances is seen on both", []Feature{cutting, changing, Processes}, processOnTwo},
	{"a process keeps its instance from being destroyed", []Feature{cutting, changing, Processes, Guards}, processGuards},
	{"a process keeps its GPU from another mode", []Feature{cutting, changing, Processes, ModeGuards}, processKeepsMode},
	{"nobody tells how busy a GPU is in MIG mode", []Feature{cutting, changing, Utilisation}, notInMIGMode},
}

const pid uint32 = 5_000_001

func (b *bench) seen(want ...nvml.Process) {
	b.Helper()
	got, err := b.Processes(b.gpu.UUID)
	b.must(err)
	slices.SortFunc(got, func(p, q nvml.Process) int { return 1000*(int(p.PID)-int(q.PID)) + int(p.Instance) - int(q.Instance) })
	if len(got) != 0 || len(want) != 0 {
		b.equal("processes", got, want)
	}
}

func processOnGPU(b *bench) {
	b.seen()
	b.must(b.attach(pid, b.gpu.UUID, 700))
	b.must(b.attach(pid+1, b.gpu.UUID, nvml.UnknownMiB))
	b.seen(
		nvml.Process{PID: pid, MemoryMiB: 700, Instance: nvml.NoInstance, Compute: nvml.NoInstance},
		nvml.Process{PID: pid + 1, MemoryMiB: nvml.UnknownMiB, Instance: nvml.NoInstance, Compute: nvml.NoInstance},
	)
	memory, err := b.Memory(b.gpu.UUID)
	b.must(err)
	if memory.UsedMiB < 700 {
		b.Errorf("a process has 700 MiB, and the GPU %d", memory.UsedMiB)
	}
	b.detach(pid)
	b.detach(pid + 1)
	b.seen()
}

func processOnInstance(b *bench) {
	for _, p := range b.places(b.cut()) {
		made, compute := b.device(p)
		b.must(b.attach(pid, compute.UUID, 300))
		b.seen(nvml.Process{PID: pid, MemoryMiB: 300, Instance: made.ID, Compute: compute.ID})
		b.detach(pid)
		b.seen()
		b.must(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
		b.destroy(made)
	}
}

func processOnTwo(b *bench) {
	made := b.fill(b.smallest(b.cut()).profile)
	var want []nvml.Process
	for _, it := range made[:2] {
		compute, err := b.CreateComputeInstance(b.gpu.UUID, it.ID)
		b.must(err)
		b.must(b.attach(pid, compute.UUID, 100))
		want = append(want, nvml.Process{PID: pid, MemoryMiB: 100, Instance: it.ID, Compute: compute.ID})
	}
	slices.SortFunc(want, func(p, q nvml.Process) int { return int(p.Instance) - int(q.Instance) })
	b.seen(want...)
}

func processGuards(b *bench) {
	made, compute := b.device(b.smallest(b.cut()))
	b.must(b.attach(pid, compute.UUID, 100))
	b.refused("DestroyComputeInstance", b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID), nvml.ErrInUse)
	b.refused("DestroyInstance", b.DestroyInstance(b.gpu.UUID, made.ID), nvml.ErrInUse)
	b.layout(made)
	b.seen(nvml.Process{PID: pid, MemoryMiB: 100, Instance: made.ID, Compute: compute.ID})
	b.detach(pid)
	b.must(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
	b.destroy(made)
}

func processKeepsMode(b *bench) {
	b.must(b.attach(pid, b.gpu.UUID, 100))
	activation, err := b.SetMIGMode(b.gpu.UUID, nvml.Enabled)
	b.must(err)
	b.refused("what became of the mode", activation, nvml.ErrInUse)
	current, _, err := b.MIGMode(b.gpu.UUID)
	b.must(err)
	if current != nvml.Disabled {
		b.Error("the mode was taken from under a process")
	}
	b.seen(nvml.Process{PID: pid, MemoryMiB: 100, Instance: nvml.NoInstance, Compute: nvml.NoInstance})
}

func notInMIGMode(b *bench) {
	b.cut()
	_, err := b.Utilisation(b.gpu.UUID)
	b.refused("Utilisation", err, nvml.ErrNotSupported)
	_, err = b.ProcessUtilisation(b.gpu.UUID, time.Time{})
	b.refused("ProcessUtilisation", err, nvml.ErrNotSupported)
}
