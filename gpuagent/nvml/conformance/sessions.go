// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"time"

	"sluice.dev/gpuagent/nvml"
)

// call is one method, called with a GPU and otherwise anyhow.
type call struct {
	method  string
	changes bool
	err     func(nvml.Library, string) error
}

// calls are all methods that ask for something of a GPU.
var calls = []call{
	{"Memory", false, func(l nvml.Library, gpu string) error { _, err := l.Memory(gpu); return err }},
	{"Utilisation", false, func(l nvml.Library, gpu string) error { _, err := l.Utilisation(gpu); return err }},
	{"Processes", false, func(l nvml.Library, gpu string) error { _, err := l.Processes(gpu); return err }},
	{"ProcessUtilisation", false, func(l nvml.Library, gpu string) error {
		_, err := l.ProcessUtilisation(gpu, time.Time{})
		return err
	}},
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

var sessions = []promise{
	{"no method but Init may be called after Shutdown", nil, closedAfterShutdown},
	{"Init may be called again after Shutdown", nil, initAgain},
	{"a GPU that is not there is not found", nil, unknownGPU},
}

func closedAfterShutdown(b *bench) {
	b.must(b.Shutdown())
	b.refused("Shutdown", b.Shutdown(), nvml.ErrUninitialized)
	_, err := b.DriverVersion()
	b.refused("DriverVersion", err, nvml.ErrUninitialized)
	_, err = b.GPUs()
	b.refused("GPUs", err, nvml.ErrUninitialized)
	for _, c := range calls {
		if !c.changes || !b.readOnly {
			b.refused(c.method, c.err(b, b.gpu.UUID), nvml.ErrUninitialized)
		}
	}
}

func initAgain(b *bench) {
	b.must(b.Shutdown())
	b.must(b.Init())
	again, err := b.GPUs()
	b.must(err)
	b.equal("GPUs", again, b.gpus)
}

func unknownGPU(b *bench) {
	for _, uuid := range []string{
		"", "0", "GPU-00000000-0000-0000-0000-000000000000", "MIG-00000000-0000-0000-0000-000000000000",
	} {
		for _, c := range calls {
			if !c.changes || !b.readOnly {
				b.refused(c.method+" of "+uuid, c.err(b, uuid), nvml.ErrNotFound, nvml.ErrInvalidArgument)
			}
		}
	}
}
