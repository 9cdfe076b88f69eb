// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"
	"strings"
)

// Burst sets whether pods may set a limit of GPU memory above their share.
//
// +kubebuilder:validation:Enum=Allow;Refuse
type Burst string

// The rules for burst.
const (
	// BurstAllow accepts limits above the share. A pod may use memory up to its limit while no
	// pod within its share needs it.
	BurstAllow Burst = "Allow"
	// BurstRefuse refuses pods with such a limit.
	BurstRefuse Burst = "Refuse"
)

// DriverMemoryLimits sets whether Sluice uses the memory limits of the GPU driver.
//
// +kubebuilder:validation:Enum=Auto;Never
type DriverMemoryLimits string

// The rules for the memory limits of the driver.
const (
	// DriverMemoryLimitsAuto uses them where the drivers of all nodes have them.
	DriverMemoryLimitsAuto DriverMemoryLimits = "Auto"
	// DriverMemoryLimitsNever does not use them.
	DriverMemoryLimitsNever DriverMemoryLimits = "Never"
)

// DefaultDriverReservePercent is the default of NodePoolSpec.DriverReservePercent: the driver
// reserves about 3 % of the memory, 450 MiB of a T4.
const DefaultDriverReservePercent int32 = 3

// memoryLimitsDriver is the first major version of the driver that limits the memory of a container.
const memoryLimitsDriver = 615

// DriverReserve returns the part of each GPU's memory that the driver reserves, in percent.
func (s *NodePoolSpec) DriverReserve() int32 {
	if s.DriverReservePercent == nil {
		return DefaultDriverReservePercent
	}
	return *s.DriverReservePercent
}

// UsesDriverMemoryLimits reports whether the driver limits the GPU memory of the pool's shares: Sluice
// may use its limits, the sharing has shares without another engine of Sluice's, and all nodes have
// a driver of version 615 or newer. A MIG instance has its own memory, and MPS limits its clients
// itself.
func (p *NodePool) UsesDriverMemoryLimits() bool {
	if p.Spec.DriverMemoryLimits == DriverMemoryLimitsNever {
		return false
	}
	if p.Spec.Sharing != SharingTimeSlicing && p.Spec.Sharing != SharingKAI {
		return false
	}
	major, _, _ := strings.Cut(p.Status.DriverVersion, ".")
	version, err := strconv.Atoi(major)
	return err == nil && version >= memoryLimitsDriver
}

// The reasons of a node pool's condition Unsupported about its way of sharing and its scheduler. The pool accepts pods all the same.
const (
	// ReasonMIGStrategyMixed means that NVIDIA's device plugin refuses MPS with migStrategy mixed,
	// which nodes of the pool have.
	ReasonMIGStrategyMixed = "MIGStrategyMixed"
	// ReasonMemoryPerProcess means that the memory limit holds for each process, not for the pod.
	ReasonMemoryPerProcess = "MemoryPerProcess"
	// ReasonMemoryIsolation means that Sluice has nothing by which pods are held to their share of
	// the memory, except that the agent reports those that exceed it.
	ReasonMemoryIsolation = "MemoryIsolation"
	// ReasonIdleCompute means that pods cannot use the idle compute of other shares.
	ReasonIdleCompute = "IdleCompute"
	// ReasonBurstGuarantee means that an allocation of a pod within its share may fail while
	// another pod exceeds its share.
	ReasonBurstGuarantee = "BurstGuarantee"
	// ReasonBurstWaiting means that a pod does not wait for memory that another pod has: conflicts
	// end with an eviction.
	ReasonBurstWaiting = "BurstWaiting"
	// ReasonBurstSwapping means that GPU memory is not swapped to the host in a conflict.
	ReasonBurstSwapping = "BurstSwapping"
	// ReasonRoomNotReserved means that another pod may take the room that a preemption makes.
	ReasonRoomNotReserved = "RoomNotReserved"
	// ReasonCPUPodsStay means that the scheduler preempts no pods without GPUs, which can keep pods with GPUs from the
	// CPUs and the memory of a node.
	ReasonCPUPodsStay = "CPUPodsStay"
)
