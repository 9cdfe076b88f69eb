// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// Model is a GPU model that supports MIG.
type Model struct {
	// Name is the model's short name: H100-80GB.
	Name string
	// MemoryGB is the memory of the whole GPU, as in the model's name.
	MemoryGB int
	// Slices is the number of memory slices: 8, or 4 on an A30.
	Slices int
	// Devices are the PCI device identifiers of the model: 0x2330.
	Devices []uint16
	// ModeWithoutReset reports whether the MIG mode changes at once. Before Hopper it is pending
	// until the GPU is reset.
	ModeWithoutReset bool
	// Estimated reports that no published output of a driver confirms the identifiers and places. They
	// are those of similar models.
	Estimated bool
	// Profiles are the model's profiles, the smallest first.
	Profiles []Profile

	placements *placementTable // by occupied slices
}

// Mask is a set of memory slices of a GPU; bit 0 is the first.
type Mask uint8

// MaskOf returns size memory slices from start on.
func MaskOf(first, size int) Mask { return Mask(1<<size-1) << first }

// Models returns all known GPU models.
func Models() []*Model { return models }

// ModelByPCIDevice returns the GPU model with a PCI device identifier in NVML's form: the device in
// the upper half, the vendor 0x10de in the lower.
func ModelByPCIDevice(pciDevice uint32) (*Model, bool) {
	for _, b := range models {
		for _, device := range b.Devices {
			if pciDevice == uint32(device)<<16|0x10de {
				return b, true
			}
		}
	}
	return nil, false
}

// ModelByName returns the GPU model with a name, in any case.
func ModelByName(name string) (*Model, bool) {
	for _, b := range models {
		if strings.EqualFold(b.Name, name) {
			return b, true
		}
	}
	return nil, false
}

// Shape identifies a profile of a model. Names do not: drivers round the memory differently, so
// that 3g.39gb and 3g.40gb are one profile.
type Shape struct {
	// Compute is the number of compute slices, Memory the number of memory slices.
	Compute, Memory int
	// Attribute is "+me" for the media engines, "+me.all" for all of them, "-me" for none, "+gfx" for
	// graphics, or "".
	Attribute string
}

// Profile is a GPU instance profile of a model.
type Profile struct {
	Shape
	// Name is its name in NVIDIA's tools and the device plugin: 3g.40gb.
	Name v1alpha1.MIGProfile
	// ID is its NVML identifier.
	ID uint32
	// MemoryMiB is an instance's approximate memory. What the driver reserves differs between
	// versions.
	MemoryMiB int64
	// Starts are the memory slices at which an instance may start, the lowest first.
	Starts []int
	// Max is the number of instances that a GPU can have.
	Max int

	index int // its index among the model's profiles
	// limited reports whether other instances can exclude one although its slices are free.
	limited bool
}

// IsLimited reports whether other instances can exclude one although its slices are free: by their
// number, or by the media engines. [GPU.Check] and [Plan] consider that, the tables of places do not.
func (p *Profile) IsLimited() bool { return p.limited }

// isLimitedAmong returns [Profile.IsLimited] for a profile of a model.
func (p *Profile) isLimitedAmong(profiles []Profile) bool {
	room, free := 0, 0
	for _, start := range p.Starts {
		if start >= free {
			room, free = room+1, start+p.Memory
		}
	}
	return p.Max < room || slices.ContainsFunc(profiles, func(q Profile) bool { return p.Excludes(&q) })
}

// Excludes reports whether a GPU cannot have an instance of each of two profiles, wherever they are: it
// has the extensions of +me once, and with +me.all one instance has all media engines.
func (p *Profile) Excludes(other *Profile) bool {
	const one, all, none = "+me", "+me.all", "-me"
	switch {
	case p.Attribute == all:
		return other.Attribute != none
	case other.Attribute == all:
		return p.Attribute != none
	}
	return p.Attribute == one && other.Attribute == one
}

// Mask returns the memory slices of an instance at start.
func (p *Profile) Mask(start int) Mask { return MaskOf(start, p.Memory) }

var profilePattern = regexp.MustCompile(`^([1-8])g\.([0-9]{1,4})gb(\+[a-z]+(?:\.[a-z]+)?|-me)?$`)

// Profile returns the model's profile with a name. Without an exact match it returns the profile
// with as many compute slices, the same attribute, and a memory that differs by rounding: by at
// most one part in twenty, or 1 GB. The error lists the profiles.
func (b *Model) Profile(name v1alpha1.MIGProfile) (*Profile, error) {
	for i := range b.Profiles {
		if b.Profiles[i].Name == name {
			return &b.Profiles[i], nil
		}
	}
	if compute, memory, attribute := parseName(name); compute > 0 {
		for i := range b.Profiles {
			p := &b.Profiles[i]
			if _, own, _ := parseName(p.Name); p.Compute == compute && p.Attribute == attribute && roundsTo(memory, own) {
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("%s has no MIG profile %q; it has %v", b.Name, name, b.profileNames())
}

// parseName returns the compute slices, the GB and the attribute in a profile's name; no compute slices for
// an invalid one.
func parseName(name v1alpha1.MIGProfile) (compute, gigabytes int, attribute string) {
	part := profilePattern.FindStringSubmatch(string(name))
	if part == nil {
		return 0, 0, ""
	}
	compute, _ = strconv.Atoi(part[1])
	gigabytes, _ = strconv.Atoi(part[2])
	return compute, gigabytes, part[3]
}

func roundsTo(a, b int) bool {
	difference := max(a, b) - min(a, b)
	return difference <= 1 || 20*difference <= max(a, b)
}

func (b *Model) profileNames() []v1alpha1.MIGProfile {
	names := make([]v1alpha1.MIGProfile, len(b.Profiles))
	for i := range b.Profiles {
		names[i] = b.Profiles[i].Name
	}
	return names
}
