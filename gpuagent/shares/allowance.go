// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shares compares the GPU memory that pods use with the memory that they may use.
//
// [NewAllowance] returns the memory that a pod may use of a device. A [Tracker] takes one [Sample] of all
// devices at a time and returns the findings: pods that use more than their limit, pods whose burst takes
// the memory that others were promised, and pods on a device that was not allocated to them. Unknown
// memory and unknown shares are never a finding, and neither is memory on a MIG device, which the
// hardware limits.
//
// The package does no I/O.
package shares

import (
	"sluice.dev/api/workload"
)

// Device is a GPU without MIG mode, or a MIG device.
type Device struct {
	// UUID is its UUID.
	UUID string
	// MIG reports that it is a MIG device.
	MIG bool
	// MemoryMiB is its memory, and ReservedMiB the part that the driver keeps for itself; 0 if unknown.
	MemoryMiB, ReservedMiB int64
	// Replicated reports that the device plugin offers replicas of it (time-slicing, MPS), and Replicas
	// how many; 0 if unknown.
	Replicated bool
	Replicas   int
}

// usableMiB returns the memory that pods can use together; 0 if unknown.
func (d *Device) usableMiB() int64 { return max(0, d.MemoryMiB-max(0, d.ReservedMiB)) }

// Allowance is the memory of one device that a pod may use, in MiB.
type Allowance struct {
	// ShareMiB is the memory that the pod requested and was promised; 0 if unknown.
	ShareMiB int64
	// LimitMiB is the memory up to which the pod may burst; 0 if it may not.
	LimitMiB int64
	// Shared reports that other pods may use the rest of the device, and that no hardware keeps the pod
	// within its share.
	Shared bool
}

// MostMiB returns the memory above which the pod exceeds its share; 0 if unknown.
func (a Allowance) MostMiB() int64 { return max(a.ShareMiB, a.LimitMiB) }

// NewAllowance returns what a pod may use of a device. The request is that of the admitted pod. held is the
// number of replicas of the device that the kubelet assigned to it: 1 for a device without replicas, and 0
// if a scheduler and not the kubelet assigned the device, as KAI-Scheduler does.
func NewAllowance(request *workload.Request, device Device, held int) Allowance {
	usable := device.usableMiB()
	switch {
	case device.MemoryMiB <= 0 || held < 0:
		return Allowance{}
	case device.Replicated && (held == 0 || device.Replicas < held):
		return Allowance{}
	case device.MIG && device.Replicated:
		return Allowance{ShareMiB: device.MemoryMiB * int64(held) / int64(device.Replicas)}
	case device.MIG && held > 0:
		return Allowance{ShareMiB: device.MemoryMiB}
	case device.MIG:
		return Allowance{}
	case device.Replicated:
		return newReplicaAllowance(request, usable, held, device.Replicas)
	}
	switch request.Form {
	case workload.FormShare:
		return newSharedAllowance(request, usable, partOf(usable, request.Share))
	case workload.FormMemory:
		return newSharedAllowance(request, usable, min(request.MemoryMiB, usable))
	case workload.FormReplica:
		return Allowance{}
	}
	if held == 0 {
		return Allowance{}
	}
	return Allowance{ShareMiB: device.MemoryMiB}
}

// newReplicaAllowance returns the part of the held replicas. Admission accepts a burst limit above it only in
// pools with time-slicing, whose replicas have no fixed size.
func newReplicaAllowance(request *workload.Request, usable int64, held, replicas int) Allowance {
	a := newSharedAllowance(request, usable, usable*int64(held)/int64(replicas))
	a.Shared = held < replicas
	return a
}

// newSharedAllowance returns a share with the burst limit of the request, as far as it is above the share.
func newSharedAllowance(request *workload.Request, usable, share int64) Allowance {
	a := Allowance{ShareMiB: max(0, share), Shared: true}
	limit := min(usable, max(request.MemoryLimitMiB, partOf(usable, request.ShareLimit)))
	if a.ShareMiB > 0 && limit > a.ShareMiB {
		a.LimitMiB = limit
	}
	return a
}

// partOf returns a part of an amount, rounded up: a pod may always use what it requested.
func partOf(amount int64, part workload.Milli) int64 { return (amount*int64(part) + 999) / 1000 }
