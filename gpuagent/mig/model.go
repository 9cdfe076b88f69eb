// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"regexp"
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
	// IDsUnpublished reports that NVIDIA has not published the identifiers of the profiles. Those
	// in the table are Sluice's own, for simulations; no driver reports them.
	IDsUnpublished bool
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

// ModelByDeviceID is ModelByPCIDevice for an identifier in the GPUNode's form: 0x233010DE.
func ModelByDeviceID(text string) (*Model, bool) {
	var id uint32
	if _, err := fmt.Sscanf(text, "0x%x", &id); err != nil {
		return nil, false
	}
	return ModelByPCIDevice(id)
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

// models lists the GPU models. Sources: NVIDIA's MIG user guide (profiles and placements), NVIDIA's
// mig-parted (device identifiers and profiles in its configurations).
var models = []*Model{
	sevenSliceModel("A100-40GB", 40, false, []uint16{0x20b0, 0x20b1, 0x20f1, 0x20f6}, 5, 10, 20),
	sevenSliceModel("A100-80GB", 80, false, []uint16{0x20b2, 0x20b5, 0x20f3, 0x20f5}, 10, 20, 40),
	fourSliceModel("A30", 24, []uint16{0x20b7}, 6),
	sevenSliceModel("H100-80GB", 80, true, []uint16{0x2322, 0x2324, 0x2330, 0x2331}, 10, 20, 40),
	sevenSliceModel("H100-NVL-94GB", 94, true, []uint16{0x2321}, 12, 24, 47),
	sevenSliceModel("H100-96GB", 96, true, []uint16{0x233d}, 12, 24, 48),
	sevenSliceModel("GH200-96GB", 96, true, []uint16{0x2342}, 12, 24, 48),
	sevenSliceModel("GH200-144GB", 144, true, []uint16{0x2348}, 18, 36, 72),
	sevenSliceModel("H200-141GB", 141, true, []uint16{0x2335, 0x233b}, 18, 35, 71),
	withUnpublishedIDs(sevenSliceModel("B200-180GB", 180, true, []uint16{0x2901}, 23, 45, 90)),
}

// sevenSliceModel returns a model with seven compute and eight memory slices. The arguments are an
// eighth, a quarter and a half of its memory in GB, as in its profiles' names.
func sevenSliceModel(name string, whole int, atOnce bool, devices []uint16, eighth, quarter, half int) *Model {
	any7, pairs := []int{0, 1, 2, 3, 4, 5, 6}, []int{0, 2, 4, 6}
	b := &Model{Name: name, MemoryGB: whole, Slices: 8, Devices: devices, ModeWithoutReset: atOnce, Profiles: []Profile{
		{Shape: Shape{1, 1, ""}, ID: 19, Starts: any7, Max: 7},
		{Shape: Shape{1, 1, "+me"}, ID: 20, Starts: any7, Max: 1},
		{Shape: Shape{1, 2, ""}, ID: 15, Starts: pairs, Max: 4},
		{Shape: Shape{2, 2, ""}, ID: 14, Starts: pairs[:3], Max: 3},
		{Shape: Shape{3, 4, ""}, ID: 9, Starts: []int{0, 4}, Max: 2},
		{Shape: Shape{4, 4, ""}, ID: 5, Starts: []int{0}, Max: 1},
		{Shape: Shape{7, 8, ""}, ID: 0, Starts: []int{0}, Max: 1},
	}}
	return b.initProfiles(map[int]int{1: eighth, 2: quarter, 4: half, 8: whole})
}

// fourSliceModel returns a model with four compute and four memory slices of the given GB each.
func fourSliceModel(name string, whole int, devices []uint16, slice int) *Model {
	b := &Model{Name: name, MemoryGB: whole, Slices: 4, Devices: devices, Profiles: []Profile{
		{Shape: Shape{1, 1, ""}, ID: 14, Starts: []int{0, 1, 2, 3}, Max: 4},
		{Shape: Shape{1, 1, "+me"}, ID: 21, Starts: []int{0, 1, 2, 3}, Max: 1},
		{Shape: Shape{2, 2, ""}, ID: 5, Starts: []int{0, 2}, Max: 2},
		{Shape: Shape{2, 2, "+me"}, ID: 6, Starts: []int{0, 2}, Max: 1},
		{Shape: Shape{4, 4, ""}, ID: 0, Starts: []int{0}, Max: 1},
	}}
	return b.initProfiles(map[int]int{1: slice, 2: 2 * slice, 4: whole})
}

// initProfiles sets the profiles' names and the placement table.
func (b *Model) initProfiles(gigabytes map[int]int) *Model {
	for i := range b.Profiles {
		p := &b.Profiles[i]
		p.index = i
		p.Name = v1alpha1.MIGProfile(fmt.Sprintf("%dg.%dgb%s", p.Compute, gigabytes[p.Memory], p.Attribute))
		p.MemoryMiB = int64(b.MemoryGB) * 1024 * int64(p.Memory) / int64(b.Slices)
	}
	b.placements = newPlacementTable(b)
	return b
}

// withUnpublishedIDs sets identifiers of Sluice's own.
func withUnpublishedIDs(b *Model) *Model {
	b.IDsUnpublished = true
	for i := range b.Profiles {
		b.Profiles[i].ID += 1000
	}
	return b
}

// Shape identifies a profile of a model. Names do not: drivers round the memory differently, so
// that 3g.39gb and 3g.40gb are one profile.
type Shape struct {
	// Compute is the number of compute slices, Memory the number of memory slices.
	Compute, Memory int
	// Attribute is "+me" for the media engines, or "".
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
	if part := profilePattern.FindStringSubmatch(string(name)); part != nil {
		compute, _ := strconv.Atoi(part[1])
		memory, _ := strconv.Atoi(part[2])
		for i := range b.Profiles {
			p := &b.Profiles[i]
			if p.Compute == compute && p.Attribute == part[3] && roundsTo(memory, p.nameGB()) {
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("%s has no MIG profile %q; it has %v", b.Name, name, b.profileNames())
}

// nameGB is the memory in the profile's name.
func (p *Profile) nameGB() int {
	part := profilePattern.FindStringSubmatch(string(p.Name))
	if part == nil {
		return 0
	}
	gigabytes, _ := strconv.Atoi(part[2])
	return gigabytes
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
