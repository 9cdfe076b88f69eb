// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml

import "time"

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
