// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package picture draws a node's GPUs for a terminal: their slices, who sits where, and
// which processes run.
//
// Enters: a [Node], which is also what the agent tells on its socket. Leaves: lines of
// at most 80 columns, with colors where they are wanted.
//
// It never asks anybody anything, and never writes a character that a terminal would
// act upon but its own colors.
package status

import (
	"time"

	"sluice.dev/api/v1alpha1"
)

// Node is a node's GPUs at one moment.
type Node struct {
	// Name is the node's name, empty where it is not known.
	Name string `json:"name,omitempty"`
	// ObservedAt is when it was looked at.
	ObservedAt time.Time `json:"at"`
	// DriverVersion is the version of the driver.
	DriverVersion string `json:"driverVersion,omitempty"`
	// Problems are what is not as it shall be, each a sentence.
	Problems []string `json:"troubles,omitempty"`
	// GPUs are the node's GPUs by index.
	GPUs []GPU `json:"gpus"`
	// Processes are those on the GPUs.
	Processes []Process `json:"processes"`
}

// GPU is one GPU.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	Model string `json:"model,omitempty"`
	// MemoryMiB is its memory, UsedMiB what of it is used; UsedMiB is nil where that is
	// not known.
	MemoryMiB int64  `json:"memoryMiB,omitempty"`
	UsedMiB   *int64 `json:"usedMiB,omitempty"`
	// Utilization is how busy it is, in percent; nil where the driver cannot tell, as
	// of a GPU that is cut.
	Utilization *int `json:"utilization,omitempty"`
	// Health and Message say whether the driver answers for it.
	Health  v1alpha1.GPUHealth `json:"health,omitempty"`
	Message string             `json:"message,omitempty"`
	// Mode is its MIG mode.
	Mode v1alpha1.MIGMode `json:"mode,omitzero"`
	// Slices is how many memory slices it has, 0 where it cannot be cut.
	Slices int `json:"slices,omitempty"`
	// Instances are what it is cut into, by their first slice.
	Instances []Instance `json:"instances,omitempty"`
	// Pods are those that have it whole, or share it.
	Pods []string `json:"pods,omitempty"`
}

// Instance is one GPU instance.
type Instance struct {
	Profile v1alpha1.MIGProfile `json:"profile"`
	// Start is its first memory slice, Size how many it has.
	Start int    `json:"start"`
	Size  int    `json:"size"`
	UUID  string `json:"uuid,omitempty"`
	// State is where it is in its life; Foreign, that it is not Sluice's.
	State   v1alpha1.InstanceState `json:"state"`
	Foreign bool                   `json:"foreign,omitempty"`
	Message string                 `json:"message,omitempty"`
	// Pod is who has it, namespace/name; empty where nobody has, or no pod.
	Pod string `json:"pod,omitempty"`
	// MemoryMiB is its memory, UsedMiB what its processes hold; 0 where not known.
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	UsedMiB   int64 `json:"usedMiB,omitempty"`
}

// Process is one process on a GPU.
type Process struct {
	PID uint32 `json:"pid"`
	// Pod is the one in which it runs, namespace/name, or its identity where the name is
	// not known; empty where it runs in none.
	Pod string `json:"pod,omitempty"`
	// GPU is the index of the GPU, Device the profile and place there, or "whole".
	GPU    int    `json:"gpu"`
	Device string `json:"device"`
	// MemoryMiB is what it holds; nil where the driver does not know.
	MemoryMiB *int64 `json:"memoryMiB,omitempty"`
}
