// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"slices"

	"sluice.dev/api/v1alpha1"
)

// Placement is an instance of a profile at its place.
type Placement struct {
	// Profile is its name, as the board has it: 3g.40gb.
	Profile v1alpha1.MIGProfile `json:"profile"`
	// Start is its first memory slice.
	Start int `json:"start"`
}

// String is the placement as people write it: 3g.40gb@4.
func (p Placement) String() string { return fmt.Sprintf("%s@%d", p.Profile, p.Start) }

// Instance is a GPU instance that is Sluice's own. The driver gives identifiers again
// to others, the UUID never.
type Instance struct {
	Placement
	// ID is the driver's identifier.
	ID uint32 `json:"id"`
	// UUID is that of its MIG device; "" while it has no compute instance.
	UUID string `json:"uuid,omitempty"`
}

// Layout is how Sluice has cut a GPU, or shall.
type Layout struct {
	// MIG is whether it is in MIG mode.
	MIG bool `json:"mig"`
	// Instances are its instances, sorted by start.
	Instances []Placement `json:"instances,omitempty"`
}

// Change is what was begun on a GPU.
type Change struct {
	// Before is the layout that the GPU had, of Sluice's own instances, and Wanted the
	// one that it shall have.
	Before Layout `json:"before"`
	Wanted Layout `json:"wanted"`
	// Next is the call to the driver that is about to be made, or was, or was not.
	Next Call `json:"next"`
}

func (c *Change) clone() Change {
	kept := *c
	kept.Before.Instances = slices.Clone(c.Before.Instances)
	kept.Wanted.Instances = slices.Clone(c.Wanted.Instances)
	return kept
}

// Act is a kind of write to the driver.
type Act string

// The writes to the driver.
const (
	CreateInstance  Act = "CreateInstance"
	CreateCompute   Act = "CreateComputeInstance"
	DestroyCompute  Act = "DestroyComputeInstance"
	DestroyInstance Act = "DestroyInstance"
	SetMode         Act = "SetMIGMode"
	Reset           Act = "Reset"
)

var acts = []Act{CreateInstance, CreateCompute, DestroyCompute, DestroyInstance, SetMode, Reset}

// Call is one write to the driver.
type Call struct {
	// Act is which.
	Act Act `json:"act"`
	// Instance is the GPU instance, with its identifier except where it is being made.
	Instance Instance `json:"instance,omitzero"`
	// Compute is the identifier of the compute instance that is destroyed.
	Compute uint32 `json:"compute,omitempty"`
	// MIG is the mode that is set.
	MIG bool `json:"mig,omitempty"`
}
