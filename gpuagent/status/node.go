// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status publishes the state of a node's GPUs.
//
// [Inventory] observes a [Node] from the driver, the GPUs' layouts, the devices' holders and the
// processes. [Render] draws it for a terminal, 80 columns wide; it replaces characters that a
// terminal would interpret. [Writer] writes a [Report] to the GPUNode's status, at most once a
// second and only if the status changes. It never writes the spec, and limits values to what the
// schema accepts.
package status

import (
	"time"

	"sluice.dev/api/v1alpha1"
)

// Node is the state of a node's GPUs at one moment.
type Node struct {
	// Name is the node's name; empty if unknown.
	Name string `json:"name,omitempty"`
	// ObservedAt is the time of the observation.
	ObservedAt time.Time `json:"observedAt"`
	// DriverVersion is the version of the driver.
	DriverVersion string `json:"driverVersion,omitempty"`
	// Problems describe what needs attention, each in a sentence.
	Problems []string `json:"problems,omitempty"`
	// GPUs are the node's GPUs by index.
	GPUs []GPU `json:"gpus"`
	// Processes are the processes on the GPUs.
	Processes []Process `json:"processes"`
}

// GPU is one GPU.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	Model string `json:"model,omitempty"`
	// MemoryMiB is its memory, UsedMiB the used part; UsedMiB is nil if unknown.
	MemoryMiB int64  `json:"memoryMiB,omitempty"`
	UsedMiB   *int64 `json:"usedMiB,omitempty"`
	// Utilization is in percent; nil if unknown, as in MIG mode.
	Utilization *int `json:"utilization,omitempty"`
	// Health and Message report whether the driver answers for it.
	Health  v1alpha1.GPUHealth `json:"health,omitempty"`
	Message string             `json:"message,omitempty"`
	// Mode is its MIG mode.
	Mode v1alpha1.MIGMode `json:"mode,omitzero"`
	// Slices is the number of memory slices; 0 without MIG mode.
	Slices int `json:"slices,omitempty"`
	// Instances are its instances by start.
	Instances []Instance `json:"instances,omitempty"`
	// Pods are the pods that have the whole GPU or share it.
	Pods []string `json:"pods,omitempty"`
}

// Instance is one GPU instance.
type Instance struct {
	Profile v1alpha1.MIGProfile `json:"profile"`
	// Start is its first memory slice, Size their number.
	Start int    `json:"start"`
	Size  int    `json:"size"`
	UUID  string `json:"uuid,omitempty"`
	// State is its state; Foreign reports that it is not Sluice's.
	State   v1alpha1.InstanceState `json:"state"`
	Foreign bool                   `json:"foreign,omitempty"`
	Message string                 `json:"message,omitempty"`
	// Pod is the pod that has it, namespace/name; empty if none is known.
	Pod string `json:"pod,omitempty"`
	// MemoryMiB is its memory, UsedMiB what its processes use; 0 if unknown.
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	UsedMiB   int64 `json:"usedMiB,omitempty"`
}

// Process is one process on a GPU.
type Process struct {
	PID uint32 `json:"pid"`
	// Pod is its pod, namespace/name, or the pod's UID if the name is unknown; empty outside of
	// pods.
	Pod string `json:"pod,omitempty"`
	// Other describes it outside of pods; nil if it is unknown.
	Other *v1alpha1.OtherProcess `json:"other,omitempty"`
	// GPU is the index of the GPU; Device is the profile and its place, or "whole".
	GPU    int    `json:"gpu"`
	Device string `json:"device"`
	// MemoryMiB is the memory it uses; nil if unknown.
	MemoryMiB *int64 `json:"memoryMiB,omitempty"`
}
