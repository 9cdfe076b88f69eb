// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"regexp"
	"strconv"

	"sluice.dev/api/v1alpha1"
)

// Shape tells profiles apart. Their names do not: drivers round the memory in
// them differently (3g.39gb and 3g.40gb are one profile).
type Shape struct {
	// Compute is how many of the board's compute slices an instance has, Memory how
	// many of its memory slices.
	Compute, Memory int
	// Attribute is what else it has: "+me" for the media engines, "" for nothing.
	Attribute string
}

// Profile is one kind of GPU instance of a board.
type Profile struct {
	Shape
	// Name is how NVIDIA's tools and the device plugin call it: 3g.40gb.
	Name v1alpha1.MIGProfile
	// ID is the identifier that NVML reports for it.
	ID uint32
	// MemoryMiB is an instance's memory, about: what the driver keeps for itself
	// differs between versions.
	MemoryMiB int64
	// Starts are the memory slices at which an instance may begin, the lowest first.
	Starts []int
	// Max is how many instances of it a GPU can have.
	Max int

	at int // which of its board's profiles it is
}

// Mask are the memory slices of an instance that begins there.
func (p *Profile) Mask(start int) Mask { return MaskOf(start, p.Memory) }

var named = regexp.MustCompile(`^([1-8])g\.([0-9]{1,4})gb(\+[a-z]+(?:\.[a-z]+)?|-me)?$`)

// Named is the board's profile of that name. Where no profile is called so the one is
// meant that has as many compute slices, the same attribute, and a memory that
// differs in rounding alone: by at most one part in twenty, or 1 GB. The error says which
// profiles there are.
func (b *Board) Named(name v1alpha1.MIGProfile) (*Profile, error) {
	for i := range b.Profiles {
		if b.Profiles[i].Name == name {
			return &b.Profiles[i], nil
		}
	}
	if part := named.FindStringSubmatch(string(name)); part != nil {
		compute, _ := strconv.Atoi(part[1])
		memory, _ := strconv.Atoi(part[2])
		for i := range b.Profiles {
			p := &b.Profiles[i]
			if p.Compute == compute && p.Attribute == part[3] && about(memory, p.gigabytes()) {
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("%s has no MIG profile %q; it has %v", b.Name, name, b.names())
}

// gigabytes is the memory in the profile's name.
func (p *Profile) gigabytes() int {
	part := named.FindStringSubmatch(string(p.Name))
	if part == nil {
		return 0
	}
	gigabytes, _ := strconv.Atoi(part[2])
	return gigabytes
}

func about(a, b int) bool {
	difference := max(a, b) - min(a, b)
	return difference <= 1 || 20*difference <= max(a, b)
}

func (b *Board) names() []v1alpha1.MIGProfile {
	names := make([]v1alpha1.MIGProfile, len(b.Profiles))
	for i := range b.Profiles {
		names[i] = b.Profiles[i].Name
	}
	return names
}
