// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"math"

	"sluice.dev/api/v1alpha1"
)

// models lists the GPU models for simulations, for tests, and for GPUs whose driver has not reported its
// profiles: it reports none before version 550 while MIG mode is off. What a driver reports replaces them.
//
// Sources: device identifiers of mig-parted (NVIDIA/mig-parted v0.15.0,
// deployments/systemd/config-default.yaml) and of the PCI ID database; profiles, places and numbers of
// NVIDIA's MIG user guide ("Supported MIG Profiles"); identifiers of profiles of the outputs of `nvidia-smi
// mig -lgip` that are named beside a model.
var models = []*Model{
	// The user guide. 20f6 and 20bd are the A800 40GB, 20f3 and 20f5 the A800 80GB.
	sevenSliceModel("A100-40GB", 40, false, 0x20b0, 0x20b1, 0x20f1, 0x20f6, 0x20bd),
	sevenSliceModel("A100-64GB", 64, false, 0x20b3).estimated(),
	sevenSliceModel("A100-80GB", 80, false, 0x20b2, 0x20b5, 0x20f3, 0x20f5),
	sevenSliceModel("PG506-96GB", 96, false, 0x20b6).estimated(),
	fourSliceModel("A30", 24, false, 0x20b7, a30Profiles()),
	// 2322 and 2324 are the H800, 233a the H800 NVL, 2339 the H100 SXM5 94GB, 2338 the H100 SXM5 96GB.
	sevenSliceModel("H100-64GB", 64, true, 0x2337).estimated(),
	sevenSliceModel("H100-80GB", 80, true, 0x2330, 0x2331, 0x2322, 0x2324),
	sevenSliceModel("H100-NVL-94GB", 94, true, 0x2321, 0x233a, 0x2339),
	sevenSliceModel("H100-96GB", 96, true, 0x233d, 0x2338),
	sevenSliceModel("H20-96GB", 96, true, 0x2329).estimated(),
	sevenSliceModel("GH200-96GB", 96, true, 0x2342),
	sevenSliceModel("GH200-144GB", 144, true, 0x2348),               // NVIDIA/mig-parted #139
	sevenSliceModel("H200-141GB", 141, true, 0x2335, 0x233b),        // NVIDIA/mig-parted #120
	sevenSliceModel("B200-180GB", 180, true, 0x2901),                // NVIDIA/gpu-operator #1242, NVIDIA/mig-parted #166
	sevenSliceModel("GB200-186GB", 186, true, 0x2941),               // NVIDIA/gpu-operator #1303, NVIDIA/mig-parted #227
	sevenSliceModel("B300-269GB", 269, true, 0x3182).estimated(),    // names: NVIDIA/mig-parted v0.15.0
	sevenSliceModel("GB300-278GB", 278, true, 0x31c2).estimated(),   // names: NVIDIA/mig-parted v0.15.0
	fourSliceModel("RTX-PRO-6000", 96, true, 0x2bb5, rtxProfiles()), // bottlerocket-os/bottlerocket-kernel-kit #300
}

// sevenSliceModel returns a model with seven compute and eight memory slices.
func sevenSliceModel(name string, gigabytes int, atOnce bool, devices ...uint16) *Model {
	any7, pairs := []int{0, 1, 2, 3, 4, 5, 6}, []int{0, 2, 4, 6}
	b := &Model{Name: name, MemoryGB: gigabytes, Slices: 8, Devices: devices, ModeWithoutReset: atOnce, Profiles: []Profile{
		{Shape: Shape{1, 1, ""}, ID: 19, Starts: any7, Max: 7},
		{Shape: Shape{1, 1, "+me"}, ID: 20, Starts: any7, Max: 1},
		{Shape: Shape{1, 2, ""}, ID: 15, Starts: pairs, Max: 4},
		{Shape: Shape{2, 2, ""}, ID: 14, Starts: pairs[:3], Max: 3},
		{Shape: Shape{3, 4, ""}, ID: 9, Starts: []int{0, 4}, Max: 2},
		{Shape: Shape{4, 4, ""}, ID: 5, Starts: []int{0}, Max: 1},
		{Shape: Shape{7, 8, ""}, ID: 0, Starts: []int{0}, Max: 1},
	}}
	return b.initProfiles()
}

// fourSliceModel returns a model with four compute and four memory slices.
func fourSliceModel(name string, gigabytes int, atOnce bool, device uint16, profiles []Profile) *Model {
	starts := map[int][]int{1: {0, 1, 2, 3}, 2: {0, 2}, 4: {0}}
	for i := range profiles {
		profiles[i].Starts = starts[profiles[i].Memory]
	}
	b := &Model{Name: name, MemoryGB: gigabytes, Slices: 4, Devices: []uint16{device}, ModeWithoutReset: atOnce, Profiles: profiles}
	return b.initProfiles()
}

func a30Profiles() []Profile {
	return []Profile{
		{Shape: Shape{1, 1, ""}, ID: 14, Max: 4},
		{Shape: Shape{1, 1, "+me"}, ID: 21, Max: 1},
		{Shape: Shape{2, 2, ""}, ID: 5, Max: 2},
		{Shape: Shape{2, 2, "+me"}, ID: 6, Max: 1},
		{Shape: Shape{4, 4, ""}, ID: 0, Max: 1},
	}
}

func rtxProfiles() []Profile {
	return []Profile{
		{Shape: Shape{1, 1, ""}, ID: 14, Max: 4},
		{Shape: Shape{1, 1, "+me"}, ID: 21, Max: 1},
		{Shape: Shape{1, 1, "+gfx"}, ID: 47, Max: 4},
		{Shape: Shape{1, 1, "+me.all"}, ID: 65, Max: 1},
		{Shape: Shape{1, 1, "-me"}, ID: 67, Max: 4},
		{Shape: Shape{2, 2, ""}, ID: 5, Max: 2},
		{Shape: Shape{2, 2, "+gfx"}, ID: 35, Max: 2},
		{Shape: Shape{2, 2, "+me.all"}, ID: 64, Max: 1},
		{Shape: Shape{2, 2, "-me"}, ID: 66, Max: 2},
		{Shape: Shape{4, 4, ""}, ID: 0, Max: 1},
		{Shape: Shape{4, 4, "+gfx"}, ID: 32, Max: 1},
	}
}

// initProfiles sets the profiles' names and memory where they are missing, and the placement table.
func (b *Model) initProfiles() *Model {
	for i := range b.Profiles {
		p := &b.Profiles[i]
		p.index, p.limited = i, p.isLimitedAmong(b.Profiles)
		if p.MemoryMiB == 0 {
			p.MemoryMiB = int64(b.MemoryGB) * 1024 * int64(p.Memory) / int64(b.Slices)
		}
		if p.Name == "" {
			p.Name = ProfileName(p.Shape, p.MemoryMiB, int64(b.MemoryGB)*1024)
		}
	}
	b.placements = newPlacementTable(b)
	return b
}

func (b *Model) estimated() *Model {
	b.Estimated = true
	return b
}

// ProfileName returns the name of a profile in NVIDIA's tools, and in the device plugin's resources, from
// the memory that the driver reports for an instance and for the whole GPU: NVIDIA's plugin computes it
// so (NVIDIA/go-nvlib v0.12.0, pkg/nvlib/device/mig_profile.go, NewMigProfile and getMigMemorySizeGB).
func ProfileName(shape Shape, instanceMiB, gpuMiB int64) v1alpha1.MIGProfile {
	const parts = 8
	gigabytes := 0.0
	if gpuMiB > 0 {
		share := math.Ceil(float64(instanceMiB)/float64(gpuMiB)*parts) / parts
		gigabytes = math.Round(share * float64((gpuMiB+1023)/1024))
	}
	return v1alpha1.MIGProfile(fmt.Sprintf("%dg.%.0fgb%s", shape.Compute, gigabytes, shape.Attribute))
}
