// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml

import "time"

// Library is the driver of one node. Its methods may be called from several
// goroutines at once. Errors are of type [Error] where the driver refused, wrapped
// or not: compare with errors.Is. No method waits for anything but the driver, which
// may take seconds (destroying an instance) and, on a broken GPU, may never answer.
//
// GPUs are named by UUID and instances by the identifiers that the driver gave them,
// which it gives again to others once they are gone: keep neither over a reset.
type Library interface {
	// Init loads the library and connects to the driver: ErrLibraryNotFound where the
	// library is missing, ErrDriverNotLoaded where the driver is. It may be called
	// again after it failed and after Shutdown; no other method may be called before.
	Init() error
	// Shutdown disconnects.
	Shutdown() error
	// DriverVersion is the version of the driver: 550.54.15.
	DriverVersion() (string, error)
	// GPUs are the node's GPUs by index, found anew at each call: a reset may change
	// indices. One that is lost is there as long as the driver counts it, with its
	// error in [GPU.Err].
	GPUs() ([]GPU, error)
	// Memory is how much of a GPU's memory is in use.
	Memory(gpu string) (Memory, error)
	// Utilisation is how busy a GPU is, in percent of the last sample period.
	// ErrNotSupported in MIG mode.
	Utilisation(gpu string) (int, error)
	// Processes are the processes on a GPU, computing, drawing, or under MPS, each
	// once per GPU instance.
	Processes(gpu string) ([]Process, error)
	// ProcessUtilisation are the newest samples of processes' use since a time; none
	// where there was none. ErrNotSupported in MIG mode.
	ProcessUtilisation(gpu string, since time.Time) ([]ProcessSample, error)

	// MIGMode is the mode that a GPU is in, and the one that it takes at its next
	// reset. ErrNotSupported where it cannot be cut.
	MIGMode(gpu string) (current, pending Mode, err error)
	// SetMIGMode asks for a mode. The first error is what became of it: nil where it
	// is in force (Hopper and later) or pending (read MIGMode), ErrInUse where
	// somebody has the GPU, ErrResetRequired where it is pending. The second is of the
	// call itself. Instances of the former mode are gone when the mode is.
	SetMIGMode(gpu string, mode Mode) (activation, err error)
	// Reset resets one GPU and no other, and takes its instances away: ErrInUse where
	// a process has it, ErrNotSupported where it can only be reset with others, or
	// not from here.
	Reset(gpu string) error

	// Profiles are the GPU instances that a board can have. Before driver 550 they may
	// be unknown while MIG mode is off: empty, and no error.
	Profiles(gpu string) ([]Profile, error)
	// Placements are where instances of a profile may lie, taken or not.
	Placements(gpu string, profile ProfileID) ([]Placement, error)
	// RemainingCapacity is how many more instances of the profile there is room for.
	RemainingCapacity(gpu string, profile ProfileID) (int, error)

	// Instances are the GPU instances that there are, by their first memory slice.
	// ErrNotSupported where MIG mode is off.
	Instances(gpu string) ([]Instance, error)
	// CreateInstance makes a GPU instance exactly there: ErrInsufficientResources
	// where the place is taken, or for another want of resources; ErrInvalidArgument
	// where the profile cannot lie there; ErrNoPermission, ErrNotSupported.
	CreateInstance(gpu string, profile ProfileID, at Placement) (Instance, error)
	// DestroyInstance takes a GPU instance away: ErrInUse while it has compute
	// instances or processes, ErrNotFound where it is gone.
	DestroyInstance(gpu string, instance uint32) error

	// ComputeInstances are those of a GPU instance.
	ComputeInstances(gpu string, instance uint32) ([]ComputeInstance, error)
	// CreateComputeInstance makes the one compute instance that fills a GPU instance:
	// only with it is there a device that a container can be given.
	CreateComputeInstance(gpu string, instance uint32) (ComputeInstance, error)
	// DestroyComputeInstance takes a compute instance away: ErrInUse while a process
	// is on it, ErrNotFound where it is gone.
	DestroyComputeInstance(gpu string, instance, compute uint32) error
}
