// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"regexp"
	"strings"

	"sluice.dev/gpuagent/nvml"
)

var inventory = []promise{
	{"the driver has a version", nil, version},
	{"each GPU is described, by index", nil, described},
	{"memory is within the GPU", nil, memory},
	{"a GPU in no mode is busy by some percent", []Feature{Utilisation}, utilisation},
	{"a GPU that cannot be cut says so", nil, uncut},
}

var versioned = regexp.MustCompile(`^[0-9]+(\.[0-9]+){1,2}$`)

func version(b *bench) {
	got, err := b.DriverVersion()
	b.must(err)
	if !versioned.MatchString(got) {
		b.Errorf("the driver's version is %q", got)
	}
}

func described(b *bench) {
	uuids := map[string]bool{}
	for i, gpu := range b.gpus {
		if gpu.Err != nil {
			b.Errorf("GPU %d does not answer: %v", gpu.Index, gpu.Err)
			continue
		}
		if !strings.HasPrefix(gpu.UUID, "GPU-") || uuids[gpu.UUID] {
			b.Errorf("GPU %d has the UUID %q, which is none or another's", gpu.Index, gpu.UUID)
		}
		uuids[gpu.UUID] = true
		if gpu.Name == "" || gpu.MemoryMiB < 1024 || gpu.PCIDevice&0xffff != 0x10de {
			b.Errorf("GPU %d is not fully described: %+v", gpu.Index, gpu)
		}
		if i > 0 && gpu.Index <= b.gpus[i-1].Index {
			b.Errorf("GPU %d comes after GPU %d", gpu.Index, b.gpus[i-1].Index)
		}
	}
	again, err := b.GPUs()
	b.must(err)
	b.equal("the GPUs, read again", again, b.gpus)
}

func memory(b *bench) {
	for _, gpu := range b.gpus {
		got, err := b.Memory(gpu.UUID)
		b.must(err)
		if got.TotalMiB != gpu.MemoryMiB || got.UsedMiB < 0 || got.UsedMiB > got.TotalMiB {
			b.Errorf("GPU %d of %d MiB has %+v", gpu.Index, gpu.MemoryMiB, got)
		}
	}
}

func utilisation(b *bench) {
	mode, _, _ := b.MIGMode(b.gpu.UUID)
	busy, err := b.Utilisation(b.gpu.UUID)
	if mode == nvml.Enabled {
		b.refused("Utilisation in MIG mode", err, nvml.ErrNotSupported)
		return
	}
	b.must(err)
	if busy < 0 || busy > 100 {
		b.Errorf("it is busy by %d %%", busy)
	}
}

func uncut(b *bench) {
	for _, gpu := range b.gpus {
		if _, _, err := b.MIGMode(gpu.UUID); err == nil {
			continue
		}
		for _, c := range calls {
			switch c.method {
			case "MIGMode", "Instances", "ComputeInstances":
				b.refused(c.method, c.err(b, gpu.UUID), nvml.ErrNotSupported)
			case "SetMIGMode", "CreateComputeInstance", "DestroyInstance", "DestroyComputeInstance":
				if !b.readOnly {
					b.refused(c.method, c.err(b, gpu.UUID), nvml.ErrNotSupported)
				}
			}
		}
	}
}
