// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nvml is the one seam to the driver of NVIDIA's GPUs: what Sluice asks
// of it, in Go's terms.
//
// Enters: calls on a GPU, by its UUID. Leaves: the driver's answers, and its errors
// as values of [Error]. Package driver answers with the real library, package
// simulator with boards that are harsher than the real ones; package conformance
// holds both to the same.
//
// It never decides anything, never tries again, and never hides an error.
package nvml

import (
	"fmt"
	"time"
)

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
	// Utilization is how busy a GPU is, in percent of the last sample period.
	// ErrNotSupported in MIG mode.
	Utilization(gpu string) (int, error)
	// Processes are the processes on a GPU, computing, drawing, or under MPS, each
	// once per GPU instance.
	Processes(gpu string) ([]Process, error)
	// ProcessUtilization are the newest samples of processes' use since a time; none
	// where there was none. ErrNotSupported in MIG mode.
	ProcessUtilization(gpu string, since time.Time) ([]ProcessSample, error)

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

// GPU is one GPU of the node.
type GPU struct {
	// UUID is its identity: GPU-8f6e2a04-....
	UUID string
	// Index is its number on the node.
	Index int
	// Name is its name in the driver's words: NVIDIA H100 80GB HBM3.
	Name string
	// PCIDevice is its PCI device identifier, the device in the upper half, the vendor
	// in the lower: 0x233010de.
	PCIDevice uint32
	// MemoryMiB is its memory in MiB, what the driver keeps for itself included.
	MemoryMiB int64
	// Err is why the driver does not answer for it: ErrGPULost. The other fields may
	// be empty then.
	Err error
}

// Memory is how much memory of a GPU is in use, in MiB.
type Memory struct{ TotalMiB, UsedMiB int64 }

// NoInstance is what a process has for a GPU instance where it is on none.
const NoInstance = ^uint32(0)

// UnknownMiB is what a process has for memory where the driver does not know.
const UnknownMiB = -1

// Process is one process on a GPU.
type Process struct {
	// PID is its identifier on the host.
	PID uint32
	// MemoryMiB is the GPU memory that it holds; UnknownMiB where that is not known.
	MemoryMiB int64
	// Instance and Compute are the GPU instance and the compute instance that it is
	// on; NoInstance where the GPU is not cut.
	Instance, Compute uint32
}

// ProcessSample is how busy a process kept its GPU.
type ProcessSample struct {
	// PID is its identifier on the host.
	PID uint32
	// At is when it was sampled.
	At time.Time
	// SM is its share of the multiprocessors' time, in percent.
	SM int
}

// Mode is a GPU's MIG mode.
type Mode bool

// The modes.
const (
	Disabled Mode = false
	Enabled  Mode = true
)

// ProfileID is what the driver calls a profile; it differs between boards.
type ProfileID uint32

// Profile is one kind of GPU instance of a board.
type Profile struct {
	// ID is the driver's identifier.
	ID ProfileID
	// Compute and Memory are its compute and its memory slices.
	Compute, Memory int
	// Attribute is what else it has, as in package mig's Shape: "+me", or "".
	Attribute string
	// Max is how many of them an empty GPU has room for.
	Max int
	// MemoryMiB is the memory of an instance.
	MemoryMiB int64
	// Multiprocessors is how many of them an instance has.
	Multiprocessors int
}

// Placement is where a GPU instance lies: its first memory slice, and how many.
type Placement struct{ Start, Size int }

// Instance is a GPU instance.
type Instance struct {
	// ID is the driver's identifier.
	ID uint32
	// Profile is its profile.
	Profile ProfileID
	// Placement is where it lies.
	Placement Placement
}

// ComputeInstance is a compute instance of a GPU instance.
type ComputeInstance struct {
	// ID is the driver's identifier, within its GPU instance.
	ID uint32
	// UUID is the device that containers are given: MIG-....
	UUID string
	// Slices is how many compute slices it has: those of its GPU instance, unless
	// somebody has made a smaller one (1c.3g.20gb has one of three).
	Slices int
}

// Error is an answer of the driver that is not success, by its number in nvml.h.
type Error uint32

// The driver's errors that Sluice tells apart.
const (
	ErrUninitialized         Error = 1
	ErrInvalidArgument       Error = 2
	ErrNotSupported          Error = 3
	ErrNoPermission          Error = 4
	ErrNotFound              Error = 6
	ErrDriverNotLoaded       Error = 9
	ErrTimeout               Error = 10
	ErrLibraryNotFound       Error = 12
	ErrGPULost               Error = 15
	ErrResetRequired         Error = 16
	ErrInUse                 Error = 19
	ErrInsufficientResources Error = 23
	ErrNotReady              Error = 27
	ErrInvalidState          Error = 29
	ErrUnknown               Error = 999
)

var errorTexts = map[Error]string{
	ErrUninitialized:         "the library is not initialized",
	ErrInvalidArgument:       "invalid argument",
	ErrNotSupported:          "not supported",
	ErrNoPermission:          "no permission",
	ErrNotFound:              "not found",
	ErrDriverNotLoaded:       "the driver is not loaded",
	ErrTimeout:               "the driver did not answer in time",
	ErrLibraryNotFound:       "the library libnvidia-ml.so.1 was not found",
	ErrGPULost:               "the GPU is lost",
	ErrResetRequired:         "the GPU has to be reset",
	ErrInUse:                 "in use",
	ErrInsufficientResources: "insufficient resources",
	ErrNotReady:              "not ready",
	ErrInvalidState:          "invalid state",
	ErrUnknown:               "unknown error",
}

// Error implements error.
func (e Error) Error() string {
	if text, ok := errorTexts[e]; ok {
		return fmt.Sprintf("NVML: %s (%d)", text, uint32(e))
	}
	return fmt.Sprintf("NVML: error %d", uint32(e))
}
