// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nvml defines [Library], the interface to the driver of NVIDIA's GPUs.
//
// Package driver implements it with NVIDIA's library, package simulator with simulated GPUs that
// are stricter than real ones. Package conformance tests both. [MonitoredLibrary] times the calls
// of a library and detects hung ones. An implementation decides nothing, retries nothing and hides
// no error.
package nvml

import (
	"fmt"
	"time"
)

// Library is the driver of one node. Several goroutines may call its methods at once. Errors of the
// driver are or wrap values of type [Error]: compare them with errors.Is. A method waits only for
// the driver, which may take seconds (destroying an instance) and on a broken GPU may never return.
//
// GPUs are named by UUID, instances by the driver's identifiers. The driver reuses identifiers:
// keep neither over a reset.
type Library interface {
	// Init loads the library and connects to the driver. It returns ErrLibraryNotFound without the
	// library and ErrDriverNotLoaded without the driver. Call it before any other method, and again
	// after a failure or Shutdown.
	Init() error
	// Shutdown disconnects from the driver.
	Shutdown() error
	// DriverVersion returns the version of the driver: 550.54.15.
	DriverVersion() (string, error)
	// GPUs returns the node's current GPUs by index; a reset may change indices. It includes lost
	// GPUs as long as the driver counts them, with [GPU.Err] set.
	GPUs() ([]GPU, error)
	// Memory returns the memory use of a GPU.
	Memory(gpu string) (Memory, error)
	// Utilization returns a GPU's utilization in the last sample period, in percent.
	// ErrNotSupported in MIG mode.
	Utilization(gpu string) (int, error)
	// Processes returns the compute, graphics and MPS processes on a GPU, each once per GPU
	// instance.
	Processes(gpu string) ([]Process, error)
	// ProcessUtilization returns the newest sample of each process since a time. ErrNotSupported in
	// MIG mode.
	ProcessUtilization(gpu string, since time.Time) ([]ProcessSample, error)
	// InstanceUtilization returns a GPU instance's utilization since the previous call for it, in
	// percent, or UnknownPercent: at the first call, and less than 100 ms after the previous one. For
	// this the library keeps one sample of each instance. ErrNotSupported before Hopper and while MIG
	// mode is off.
	InstanceUtilization(gpu string, instance uint32) (int, error)

	// MIGMode returns a GPU's MIG mode and the mode after its next reset. ErrNotSupported for a GPU
	// without MIG.
	MIGMode(gpu string) (current, pending Mode, err error)
	// SetMIGMode sets the MIG mode. activation is nil if the mode is in force (Hopper and later) or
	// pending (read MIGMode), ErrInUse for a GPU in use, and ErrResetRequired if it is pending. err
	// is the error of the call itself. Leaving the mode destroys all instances.
	SetMIGMode(gpu string, mode Mode) (activation, err error)
	// Reset resets one GPU and destroys its instances. ErrInUse while a process uses it,
	// ErrNotSupported if it can only be reset with others, or not by this process.
	Reset(gpu string) error

	// Profiles returns the GPU instance profiles of a GPU. Before driver 550 the list may be empty
	// while MIG mode is off.
	Profiles(gpu string) ([]Profile, error)
	// Placements returns the possible places of a profile's instances, occupied or not.
	Placements(gpu string, profile ProfileID) ([]Placement, error)
	// RemainingCapacity returns how many more instances of the profile fit.
	RemainingCapacity(gpu string, profile ProfileID) (int, error)

	// Instances returns the GPU instances by their first memory slice. ErrNotSupported while MIG
	// mode is off.
	Instances(gpu string) ([]Instance, error)
	// CreateInstance creates a GPU instance at a place. ErrInsufficientResources if the place is
	// occupied or resources are missing, ErrInvalidArgument for an impossible place;
	// ErrNoPermission, ErrNotSupported.
	CreateInstance(gpu string, profile ProfileID, at Placement) (Instance, error)
	// DestroyInstance destroys a GPU instance. ErrInUse while it has compute instances or
	// processes, ErrNotFound if it is gone.
	DestroyInstance(gpu string, instance uint32) error

	// ComputeInstances returns the compute instances of a GPU instance.
	ComputeInstances(gpu string, instance uint32) ([]ComputeInstance, error)
	// CreateComputeInstance creates the compute instance that fills a GPU instance. Only then is
	// there a device for containers.
	CreateComputeInstance(gpu string, instance uint32) (ComputeInstance, error)
	// DestroyComputeInstance destroys a compute instance. ErrInUse while a process uses it,
	// ErrNotFound if it is gone.
	DestroyComputeInstance(gpu string, instance, compute uint32) error
}

// GPU is one GPU of the node.
type GPU struct {
	// UUID is its identity: GPU-8f6e2a04-....
	UUID string
	// Index is its number on the node.
	Index int
	// Name is the driver's name of the GPU model: NVIDIA H100 80GB HBM3.
	Name string
	// PCIDevice is its PCI device identifier, the device in the upper half, the vendor
	// in the lower: 0x233010de.
	PCIDevice uint32
	// MemoryMiB is its memory in MiB, including what the driver reserves.
	MemoryMiB int64
	// Err is why the driver does not answer for the GPU: ErrGPULost. The other fields may then be
	// empty.
	Err error
}

// Memory is the memory of a GPU in MiB. ReservedMiB is the part of the total that the driver keeps for
// itself; 0 if the driver does not report it.
type Memory struct{ TotalMiB, UsedMiB, ReservedMiB int64 }

// NoInstance is the GPU instance of a process on a GPU without MIG mode.
const NoInstance = ^uint32(0)

// UnknownMiB is the memory of a process if the driver does not report it.
const UnknownMiB = -1

// UnknownPercent is a utilization that is not known yet.
const UnknownPercent = -1

// Process is one process on a GPU.
type Process struct {
	// PID is its PID on the host.
	PID uint32
	// MemoryMiB is the GPU memory that it uses, or UnknownMiB.
	MemoryMiB int64
	// Instance and Compute are its GPU instance and compute instance, or NoInstance.
	Instance, Compute uint32
}

// ProcessSample is a sample of a process's utilization.
type ProcessSample struct {
	// PID is its PID on the host.
	PID uint32
	// At is the time of the sample.
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

// ProfileID is the driver's identifier of a profile. It differs between GPU models.
type ProfileID uint32

// Profile is a GPU instance profile.
type Profile struct {
	// ID is the driver's identifier.
	ID ProfileID
	// Compute and Memory are its numbers of compute and memory slices.
	Compute, Memory int
	// Attribute is an attribute as in package mig's Shape: "+me", or "".
	Attribute string
	// Starts are the memory slices at which an instance may start, the lowest first.
	Starts []int
	// Max is the number of such instances that an empty GPU can have.
	Max int
	// MemoryMiB is the memory of an instance.
	MemoryMiB int64
	// Multiprocessors is the number of multiprocessors of an instance.
	Multiprocessors int
}

// Placement is the place of a GPU instance: its first memory slice and their number.
type Placement struct{ Start, Size int }

// Instance is a GPU instance.
type Instance struct {
	// ID is the driver's identifier.
	ID        uint32
	Profile   ProfileID
	Placement Placement
}

// ComputeInstance is a compute instance of a GPU instance.
type ComputeInstance struct {
	// ID is the driver's identifier within the GPU instance.
	ID uint32
	// UUID is the UUID of the device for containers: MIG-....
	UUID string
	// Slices is its number of compute slices: all of its GPU instance, or fewer if another program
	// created it (1c.3g.20gb has one of three).
	Slices int
}

// Error is an error code of nvml.h.
type Error uint32

// The error codes that Sluice distinguishes.
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
