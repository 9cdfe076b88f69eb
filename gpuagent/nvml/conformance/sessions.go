// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"regexp"
	"strings"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// call is one method with a GPU and arbitrary other arguments.
type call struct {
	method  string
	changes bool
	err     func(nvml.Library, string) error
}

// calls are all methods with a GPU as argument.
var calls = []call{
	{"Memory", false, func(l nvml.Library, gpu string) error { _, err := l.Memory(gpu); return err }},
	{"Utilization", false, func(l nvml.Library, gpu string) error { _, err := l.Utilization(gpu); return err }},
	{"Processes", false, func(l nvml.Library, gpu string) error { _, err := l.Processes(gpu); return err }},
	{"ProcessUtilization", false, func(l nvml.Library, gpu string) error {
		_, err := l.ProcessUtilization(gpu, time.Time{})
		return err
	}},
	{"InstanceUtilization", false, func(l nvml.Library, gpu string) error { _, err := l.InstanceUtilization(gpu, 0); return err }},
	{"MIGMode", false, func(l nvml.Library, gpu string) error { _, _, err := l.MIGMode(gpu); return err }},
	{"Profiles", false, func(l nvml.Library, gpu string) error { _, err := l.Profiles(gpu); return err }},
	{"Placements", false, func(l nvml.Library, gpu string) error { _, err := l.Placements(gpu, 0); return err }},
	{"RemainingCapacity", false, func(l nvml.Library, gpu string) error { _, err := l.RemainingCapacity(gpu, 0); return err }},
	{"Instances", false, func(l nvml.Library, gpu string) error { _, err := l.Instances(gpu); return err }},
	{"ComputeInstances", false, func(l nvml.Library, gpu string) error { _, err := l.ComputeInstances(gpu, 0); return err }},
	{"SetMIGMode", true, func(l nvml.Library, gpu string) error { _, err := l.SetMIGMode(gpu, nvml.Enabled); return err }},
	{"Reset", true, func(l nvml.Library, gpu string) error { return l.Reset(gpu) }},
	{"CreateInstance", true, func(l nvml.Library, gpu string) error {
		_, err := l.CreateInstance(gpu, 0, nvml.Placement{Start: 0, Size: 8})
		return err
	}},
	{"DestroyInstance", true, func(l nvml.Library, gpu string) error { return l.DestroyInstance(gpu, 0) }},
	{"CreateComputeInstance", true, func(l nvml.Library, gpu string) error {
		_, err := l.CreateComputeInstance(gpu, 0)
		return err
	}},
	{"DestroyComputeInstance", true, func(l nvml.Library, gpu string) error { return l.DestroyComputeInstance(gpu, 0, 0) }},
}

var sessionCases = []testCase{
	{"no method but Init may be called after Shutdown", nil, callsAfterShutdown},
	{"Init may be called again after Shutdown", nil, reinitialize},
	{"an unknown GPU is not found", nil, unknownGPU},
}

func callsAfterShutdown(b *fixture) {
	b.requireNoError(b.Shutdown())
	b.requireError("Shutdown", b.Shutdown(), nvml.ErrUninitialized)
	_, err := b.DriverVersion()
	b.requireError("DriverVersion", err, nvml.ErrUninitialized)
	_, err = b.GPUs()
	b.requireError("GPUs", err, nvml.ErrUninitialized)
	for _, c := range calls {
		if !c.changes || !b.readOnly {
			b.requireError(c.method, c.err(b, b.gpu.UUID), nvml.ErrUninitialized)
		}
	}
}

func reinitialize(b *fixture) {
	b.requireNoError(b.Shutdown())
	b.requireNoError(b.Init())
	again, err := b.GPUs()
	b.requireNoError(err)
	b.requireEqual("GPUs", again, b.gpus)
}

func unknownGPU(b *fixture) {
	for _, uuid := range []string{
		"", "0", "GPU-00000000-0000-0000-0000-000000000000", "MIG-00000000-0000-0000-0000-000000000000",
	} {
		for _, c := range calls {
			if !c.changes || !b.readOnly {
				b.requireError(c.method+" of "+uuid, c.err(b, uuid), nvml.ErrNotFound, nvml.ErrInvalidArgument)
			}
		}
	}
}

var inventoryCases = []testCase{
	{"the driver has a version", nil, driverVersion},
	{"each GPU is described, by index", nil, gpusAreDescribed},
	{"memory is within the GPU", nil, memoryWithinGPU},
	{"a GPU without MIG mode reports its utilization in percent", []Feature{Utilization}, utilizationPercent},
	{"a GPU without MIG reports so", nil, gpuWithoutMIG},
}

var driverVersionPattern = regexp.MustCompile(`^[0-9]+(\.[0-9]+){1,2}$`)

func driverVersion(b *fixture) {
	got, err := b.DriverVersion()
	b.requireNoError(err)
	if !driverVersionPattern.MatchString(got) {
		b.Errorf("the driver's version is %q", got)
	}
}

func gpusAreDescribed(b *fixture) {
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
	b.requireNoError(err)
	b.requireEqual("the GPUs, read again", again, b.gpus)
}

func memoryWithinGPU(b *fixture) {
	for _, gpu := range b.gpus {
		got, err := b.Memory(gpu.UUID)
		b.requireNoError(err)
		if got.TotalMiB != gpu.MemoryMiB || got.UsedMiB < 0 || got.UsedMiB > got.TotalMiB {
			b.Errorf("GPU %d of %d MiB has %+v", gpu.Index, gpu.MemoryMiB, got)
		}
	}
}

func utilizationPercent(b *fixture) {
	mode, _, _ := b.MIGMode(b.gpu.UUID)
	busy, err := b.Utilization(b.gpu.UUID)
	if mode == nvml.Enabled {
		b.requireError("Utilization in MIG mode", err, nvml.ErrNotSupported)
		return
	}
	b.requireNoError(err)
	if busy < 0 || busy > 100 {
		b.Errorf("it is busy by %d %%", busy)
	}
}

func gpuWithoutMIG(b *fixture) {
	for _, gpu := range b.gpus {
		if _, _, err := b.MIGMode(gpu.UUID); err == nil {
			continue
		}
		for _, c := range calls {
			switch c.method {
			case "MIGMode", "Instances", "ComputeInstances", "InstanceUtilization":
				b.requireError(c.method, c.err(b, gpu.UUID), nvml.ErrNotSupported)
			case "SetMIGMode", "CreateComputeInstance", "DestroyInstance", "DestroyComputeInstance":
				if !b.readOnly {
					b.requireError(c.method, c.err(b, gpu.UUID), nvml.ErrNotSupported)
				}
			}
		}
	}
}
