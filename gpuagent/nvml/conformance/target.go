// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"

	"sluice.dev/gpuagent/nvml"
)

// Target is an implementation that is held to the suite.
type Target struct {
	// Name is what its tests are called.
	Name string
	// New is a node for one case: not initialised, its GPUs not cut and not in MIG mode
	// unless the target is read-only, nobody on them. What it starts ends with the test.
	New func(t *testing.T) Node
	// Lacks are the features that it does not have, each with the reason.
	Lacks map[Feature]string
	// ReadOnly leaves out every case that would change a GPU.
	ReadOnly bool
}

// Node is one node of an implementation.
type Node struct {
	// Library is the node's driver.
	Library nvml.Library
	// Attach puts a process onto a device, a GPU's UUID or a MIG device's, with so much
	// memory in MiB or nvml.UnknownMiB; Detach takes it off. Nil where the
	// target lacks Processes.
	Attach func(pid uint32, device string, memoryMiB int64) error
	Detach func(pid uint32)
}

// Feature is something that an implementation may lack.
type Feature string

// The features.
const (
	// Refusals: an instance is refused where there is no room for it.
	Refusals Feature = "refuses instances for which there is no room"
	// Guards: what holds something else is not destroyed.
	Guards Feature = "refuses to destroy what is in use"
	// ModeGuards: instances need MIG mode, and are gone with it.
	ModeGuards Feature = "keeps instances to MIG mode"
	// Identifiers: profiles have the identifiers that the boards' real drivers give.
	Identifiers Feature = "has the real profiles' identifiers"
	// Capacity: RemainingCapacity answers.
	Capacity Feature = "tells the remaining capacity"
	// FreshUUIDs: a MIG device never has the UUID of one that is gone.
	FreshUUIDs Feature = "never gives a UUID again"
	// Processes: processes can be attached, and are listed.
	Processes Feature = "has processes"
	// Utilisation: GPUs and processes tell how busy they are.
	Utilisation Feature = "tells utilisation"
	// Reset: a GPU can be reset.
	Reset Feature = "resets GPUs"

	// cutting is that the board can be cut, and changing that the target is not read-only.
	// The suite finds both out itself.
	cutting  Feature = "can be cut"
	changing Feature = "may be changed"
)
