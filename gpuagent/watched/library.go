// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package watched

import (
	"errors"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// Library is a driver whose calls are watched.
type Library struct {
	// Driver is the real one.
	Driver nvml.Library
	// Watch knows its calls.
	Watch *Watch
}

var _ nvml.Library = Library{}

// run is a call without an answer, ask one with an answer.
func (l Library) run(call string, do func() error) error {
	done := l.Watch.begin(call)
	err := do()
	done(err)
	return err
}

func ask[T any](l Library, call string, do func() (T, error)) (T, error) {
	done := l.Watch.begin(call)
	answer, err := do()
	done(err)
	return answer, err
}

// Init implements [nvml.Library], as do the others.
func (l Library) Init() error { return l.run("Init", l.Driver.Init) }

// Shutdown implements [nvml.Library].
func (l Library) Shutdown() error { return l.run("Shutdown", l.Driver.Shutdown) }

// DriverVersion implements [nvml.Library].
func (l Library) DriverVersion() (string, error) {
	return ask(l, "DriverVersion", l.Driver.DriverVersion)
}

// GPUs implements [nvml.Library].
func (l Library) GPUs() ([]nvml.GPU, error) { return ask(l, "GPUs", l.Driver.GPUs) }

// Memory implements [nvml.Library].
func (l Library) Memory(gpu string) (nvml.Memory, error) {
	return ask(l, "Memory", func() (nvml.Memory, error) { return l.Driver.Memory(gpu) })
}

// Utilisation implements [nvml.Library].
func (l Library) Utilisation(gpu string) (int, error) {
	return ask(l, "Utilisation", func() (int, error) { return l.Driver.Utilisation(gpu) })
}

// Processes implements [nvml.Library].
func (l Library) Processes(gpu string) ([]nvml.Process, error) {
	return ask(l, "Processes", func() ([]nvml.Process, error) { return l.Driver.Processes(gpu) })
}

// ProcessUtilisation implements [nvml.Library].
func (l Library) ProcessUtilisation(gpu string, since time.Time) ([]nvml.ProcessSample, error) {
	return ask(l, "ProcessUtilisation", func() ([]nvml.ProcessSample, error) { return l.Driver.ProcessUtilisation(gpu, since) })
}

// MIGMode implements [nvml.Library].
func (l Library) MIGMode(gpu string) (current, pending nvml.Mode, err error) {
	err = l.run("MIGMode", func() (err error) {
		current, pending, err = l.Driver.MIGMode(gpu)
		return err
	})
	return current, pending, err
}

// SetMIGMode implements [nvml.Library].
func (l Library) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	done := l.Watch.begin("SetMIGMode")
	activation, err = l.Driver.SetMIGMode(gpu, mode)
	done(errors.Join(activation, err))
	return activation, err
}

// Reset implements [nvml.Library].
func (l Library) Reset(gpu string) error {
	return l.run("Reset", func() error { return l.Driver.Reset(gpu) })
}

// Profiles implements [nvml.Library].
func (l Library) Profiles(gpu string) ([]nvml.Profile, error) {
	return ask(l, "Profiles", func() ([]nvml.Profile, error) { return l.Driver.Profiles(gpu) })
}

// Placements implements [nvml.Library].
func (l Library) Placements(gpu string, profile nvml.ProfileID) ([]nvml.Placement, error) {
	return ask(l, "Placements", func() ([]nvml.Placement, error) { return l.Driver.Placements(gpu, profile) })
}

// RemainingCapacity implements [nvml.Library].
func (l Library) RemainingCapacity(gpu string, profile nvml.ProfileID) (int, error) {
	return ask(l, "RemainingCapacity", func() (int, error) { return l.Driver.RemainingCapacity(gpu, profile) })
}

// Instances implements [nvml.Library].
func (l Library) Instances(gpu string) ([]nvml.Instance, error) {
	return ask(l, "Instances", func() ([]nvml.Instance, error) { return l.Driver.Instances(gpu) })
}

// CreateInstance implements [nvml.Library].
func (l Library) CreateInstance(gpu string, profile nvml.ProfileID, at nvml.Placement) (nvml.Instance, error) {
	return ask(l, "CreateInstance", func() (nvml.Instance, error) { return l.Driver.CreateInstance(gpu, profile, at) })
}

// DestroyInstance implements [nvml.Library].
func (l Library) DestroyInstance(gpu string, instance uint32) error {
	return l.run("DestroyInstance", func() error { return l.Driver.DestroyInstance(gpu, instance) })
}

// ComputeInstances implements [nvml.Library].
func (l Library) ComputeInstances(gpu string, instance uint32) ([]nvml.ComputeInstance, error) {
	return ask(l, "ComputeInstances", func() ([]nvml.ComputeInstance, error) { return l.Driver.ComputeInstances(gpu, instance) })
}

// CreateComputeInstance implements [nvml.Library].
func (l Library) CreateComputeInstance(gpu string, instance uint32) (nvml.ComputeInstance, error) {
	return ask(l, "CreateComputeInstance", func() (nvml.ComputeInstance, error) { return l.Driver.CreateComputeInstance(gpu, instance) })
}

// DestroyComputeInstance implements [nvml.Library].
func (l Library) DestroyComputeInstance(gpu string, instance, compute uint32) error {
	return l.run("DestroyComputeInstance", func() error { return l.Driver.DestroyComputeInstance(gpu, instance, compute) })
}
