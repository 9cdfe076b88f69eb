// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// Board is a kind of GPU that can be cut.
type Board struct {
	// Name is the board's short name: H100-80GB.
	Name string
	// MemoryGB is the memory of the whole board, as its name has it.
	MemoryGB int
	// Slices is how many memory slices it has: 8, or 4 on an A30.
	Slices int
	// Devices are the PCI device identifiers of the boards of this kind: 0x2330.
	Devices []uint16
	// ModeAtOnce tells that MIG mode changes at once; before Hopper it is pending until the
	// GPU is reset.
	ModeAtOnce bool
	// IDsUnpublished tells that NVIDIA has not published the identifiers of its
	// profiles: those here are Sluice's own, for simulations, and no driver reports
	// them.
	IDsUnpublished bool
	// Profiles are what it can be cut into, the smallest first.
	Profiles []Profile

	room *room // what is left, by what is taken
}

// Mask is a set of memory slices of a GPU: bit 0 is the first.
type Mask uint8

// MaskOf are so many memory slices from the first on.
func MaskOf(first, size int) Mask { return Mask(1<<size-1) << first }

// Boards are all that are known.
func Boards() []*Board { return boards }

// BoardOf is the kind of a GPU by its PCI device identifier as NVML gives it (the
// device in the upper half, the vendor 0x10de in the lower), and false where it is
// not known.
func BoardOf(pciDevice uint32) (*Board, bool) {
	for _, b := range boards {
		for _, device := range b.Devices {
			if pciDevice == uint32(device)<<16|0x10de {
				return b, true
			}
		}
	}
	return nil, false
}

// BoardNamed is the board of that name, in any case.
func BoardNamed(name string) (*Board, bool) {
	for _, b := range boards {
		if strings.EqualFold(b.Name, name) {
			return b, true
		}
	}
	return nil, false
}

// boards. Sources: NVIDIA's MIG user guide (profiles and placements), NVIDIA's
// mig-parted (device identifiers and profiles in its configurations).
var boards = []*Board{
	seven("A100-40GB", 40, false, []uint16{0x20b0, 0x20b1, 0x20f1, 0x20f6}, 5, 10, 20),
	seven("A100-80GB", 80, false, []uint16{0x20b2, 0x20b5, 0x20f3, 0x20f5}, 10, 20, 40),
	four("A30", 24, []uint16{0x20b7}, 6),
	seven("H100-80GB", 80, true, []uint16{0x2322, 0x2324, 0x2330, 0x2331}, 10, 20, 40),
	seven("H100-NVL-94GB", 94, true, []uint16{0x2321}, 12, 24, 47),
	seven("H100-96GB", 96, true, []uint16{0x233d}, 12, 24, 48),
	seven("GH200-96GB", 96, true, []uint16{0x2342}, 12, 24, 48),
	seven("GH200-144GB", 144, true, []uint16{0x2348}, 18, 36, 72),
	seven("H200-141GB", 141, true, []uint16{0x2335, 0x233b}, 18, 35, 71),
	unpublished(seven("B200-180GB", 180, true, []uint16{0x2901}, 23, 45, 90)),
}

// seven is a board of seven compute and eight memory slices. An eighth, a quarter
// and a half of its memory are so many GB, as its profiles' names have them.
func seven(name string, whole int, atOnce bool, devices []uint16, eighth, quarter, half int) *Board {
	any7, pairs := []int{0, 1, 2, 3, 4, 5, 6}, []int{0, 2, 4, 6}
	b := &Board{Name: name, MemoryGB: whole, Slices: 8, Devices: devices, ModeAtOnce: atOnce, Profiles: []Profile{
		{Shape: Shape{1, 1, ""}, ID: 19, Starts: any7, Max: 7},
		{Shape: Shape{1, 1, "+me"}, ID: 20, Starts: any7, Max: 1},
		{Shape: Shape{1, 2, ""}, ID: 15, Starts: pairs, Max: 4},
		{Shape: Shape{2, 2, ""}, ID: 14, Starts: pairs[:3], Max: 3},
		{Shape: Shape{3, 4, ""}, ID: 9, Starts: []int{0, 4}, Max: 2},
		{Shape: Shape{4, 4, ""}, ID: 5, Starts: []int{0}, Max: 1},
		{Shape: Shape{7, 8, ""}, ID: 0, Starts: []int{0}, Max: 1},
	}}
	return b.complete(map[int]int{1: eighth, 2: quarter, 4: half, 8: whole})
}

// four is a board of four compute and four memory slices, each of so many GB.
func four(name string, whole int, devices []uint16, slice int) *Board {
	b := &Board{Name: name, MemoryGB: whole, Slices: 4, Devices: devices, Profiles: []Profile{
		{Shape: Shape{1, 1, ""}, ID: 14, Starts: []int{0, 1, 2, 3}, Max: 4},
		{Shape: Shape{1, 1, "+me"}, ID: 21, Starts: []int{0, 1, 2, 3}, Max: 1},
		{Shape: Shape{2, 2, ""}, ID: 5, Starts: []int{0, 2}, Max: 2},
		{Shape: Shape{2, 2, "+me"}, ID: 6, Starts: []int{0, 2}, Max: 1},
		{Shape: Shape{4, 4, ""}, ID: 0, Starts: []int{0}, Max: 1},
	}}
	return b.complete(map[int]int{1: slice, 2: 2 * slice, 4: whole})
}

// complete names the profiles after their memory, and computes what fits where.
func (b *Board) complete(gigabytes map[int]int) *Board {
	for i := range b.Profiles {
		p := &b.Profiles[i]
		p.at = i
		p.Name = v1alpha1.MIGProfile(fmt.Sprintf("%dg.%dgb%s", p.Compute, gigabytes[p.Memory], p.Attribute))
		p.MemoryMiB = int64(b.MemoryGB) * 1024 * int64(p.Memory) / int64(b.Slices)
	}
	b.room = newRoom(b)
	return b
}

// unpublished gives a board identifiers of Sluice's own.
func unpublished(b *Board) *Board {
	b.IDsUnpublished = true
	for i := range b.Profiles {
		b.Profiles[i].ID += 1000
	}
	return b
}
