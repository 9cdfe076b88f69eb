// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// Profiles implements [nvml.Library]. It returns ErrNotSupported for a GPU model without MIG.
func (p *session) Profiles(gpu string) ([]nvml.Profile, error) {
	n := p.node
	return simulate(p, Call{Method: "Profiles", GPU: gpu}, func() ([]nvml.Profile, error) {
		g, err := n.migCapableGPU(gpu)
		if err != nil || !n.hasProfiles(g) {
			return nil, err
		}
		var list []nvml.Profile
		for i := range g.migModel.Profiles {
			it := &g.migModel.Profiles[i]
			list = append(list, nvml.Profile{
				ID: nvml.ProfileID(it.ID), Compute: it.Compute, Memory: it.Memory, Attribute: it.Attribute, Starts: it.Starts, Max: it.Max,
				MemoryMiB: g.instanceMemory(it), Multiprocessors: g.multiprocessorsOf(it),
			})
		}
		return unordered(n, list), nil
	})
}

// Placements implements [nvml.Library].
func (p *session) Placements(gpu string, profile nvml.ProfileID) ([]nvml.Placement, error) {
	n := p.node
	return simulate(p, Call{Method: "Placements", GPU: gpu, Profile: profile}, func() ([]nvml.Placement, error) {
		g, err := n.migCapableGPU(gpu)
		if err != nil {
			return nil, err
		}
		if n.denied {
			return nil, errorf(nvml.ErrNoPermission, "no access to mig/config")
		}
		it, err := n.profileByID(g, profile)
		if err != nil {
			return nil, err
		}
		var list []nvml.Placement
		for _, start := range it.Starts {
			list = append(list, nvml.Placement{Start: start, Size: it.Memory})
		}
		return unordered(n, list), nil
	})
}

// RemainingCapacity implements [nvml.Library].
func (p *session) RemainingCapacity(gpu string, profile nvml.ProfileID) (int, error) {
	n := p.node
	return simulate(p, Call{Method: "RemainingCapacity", GPU: gpu, Profile: profile}, func() (int, error) {
		g, err := n.migEnabledGPU(gpu)
		if err != nil {
			return 0, err
		}
		it, err := n.profileByID(g, profile)
		if err != nil {
			return 0, err
		}
		return g.remainingCapacity(it), nil
	})
}

// hasProfiles reports whether the driver knows the GPU's profiles.
func (n *Node) hasProfiles(g *gpu) bool {
	major, _, _ := strings.Cut(n.version, ".")
	release, err := strconv.Atoi(major)
	return g.mode == nvml.Enabled || err != nil || release >= 550
}

// profileByID returns a profile by the driver's identifier.
func (n *Node) profileByID(g *gpu, id nvml.ProfileID) (*mig.Profile, error) {
	if !n.hasProfiles(g) {
		return nil, errorf(nvml.ErrNotSupported, "driver %s reports no profiles of %s while MIG mode is off", n.version, g.uuid)
	}
	if it := g.profileByNVMLID(uint32(id)); it != nil {
		return it, nil
	}
	return nil, errorf(nvml.ErrInvalidArgument, "%s has no profile %d", g.migModel.Name, id)
}

// remainingCapacity returns how many more instances of a profile fit. Its places never overlap each
// other, so each free one counts.
func (g *gpu) remainingCapacity(p *mig.Profile) int {
	free, most := 0, g.remainingAllowed(p)
	for _, start := range p.Starts {
		if g.instanceAt(start, p.Memory) == nil {
			free++
		}
	}
	return max(0, min(free, most))
}

// remainingAllowed returns how many more instances of a profile the GPU model allows.
func (g *gpu) remainingAllowed(p *mig.Profile) int {
	most := p.Max
	for _, i := range g.instances {
		switch {
		case i.profile.Excludes(p):
			return 0
		case i.profile == p:
			most--
		}
	}
	return most
}

// instanceAt returns an instance with one of the slices, or nil.
func (g *gpu) instanceAt(start, size int) *instance {
	k := slices.IndexFunc(g.instances, func(i *instance) bool {
		return i.start < start+size && start < i.start+i.profile.Memory
	})
	if k < 0 {
		return nil
	}
	return g.instances[k]
}

// modelSpec is a GPU model as the driver reports it.
type modelSpec struct {
	migModel  *mig.Model // nil without MIG
	name      string     // the driver's name
	device    uint16     // its PCI device identifier
	memoryMiB int64
	// multiprocessors of the profiles without attribute, in the order of the model's table.
	multiprocessors []int
	memory          map[int]int64 // MiB of an instance by its memory slices, if they differ from the model's
}

// The multiprocessors of 1g, 1g with double memory, 2g, 3g, 4g and 7g. Those of the A100, the H100 and the
// H200 are of outputs of `nvidia-smi mig -lgip`, as those of 1g and 2g of the B200 and the GB200; the
// sources are beside the models in package mig. All others are estimates.
var (
	a100SMs  = []int{14, 14, 28, 42, 56, 98}
	h100SMs  = []int{16, 26, 32, 60, 64, 132}
	h20SMs   = []int{8, 16, 18, 36, 38, 78} // estimated
	b200SMs  = []int{18, 30, 36, 70, 72, 148}
	gb200SMs = []int{18, 32, 38, 70, 76, 152}
)

// migModels are package mig's GPU models by name. Memory is what the driver reports; that of the
// A100-64GB, PG506, H100-64GB, H20, GB200, B300 and GB300 is estimated.
var migModels = map[string]modelSpec{
	"A100-40GB": {
		name: "NVIDIA A100-SXM4-40GB", memoryMiB: 40960, multiprocessors: a100SMs,
		memory: map[int]int64{1: 4864, 2: 9856, 4: 19968, 8: 40192},
	},
	"A100-64GB": {name: "NVIDIA A100-SXM-64GB", memoryMiB: 65536, multiprocessors: a100SMs},
	"A100-80GB": {
		name: "NVIDIA A100-SXM4-80GB", memoryMiB: 81920, multiprocessors: a100SMs,
		memory: map[int]int64{1: 9856, 2: 19968, 4: 40192, 8: 80384},
	},
	"PG506-96GB": {name: "NVIDIA PG506-232", memoryMiB: 98304, multiprocessors: a100SMs},
	"A30":        {name: "NVIDIA A30", memoryMiB: 24576, multiprocessors: []int{14, 28, 56}},
	"H100-64GB":  {name: "NVIDIA H100 64GB HBM2", memoryMiB: 65247, multiprocessors: h100SMs},
	"H100-80GB": {
		name: "NVIDIA H100 80GB HBM3", memoryMiB: 81559, multiprocessors: h100SMs,
		memory: map[int]int64{1: 9984, 2: 20096, 4: 40448, 8: 81152},
	},
	"H100-NVL-94GB": {name: "NVIDIA H100 NVL", memoryMiB: 95830, multiprocessors: h100SMs},
	"H100-96GB":     {name: "NVIDIA H100 96GB HBM3", memoryMiB: 97871, multiprocessors: h100SMs},
	"H20-96GB":      {name: "NVIDIA H20", memoryMiB: 97871, multiprocessors: h20SMs},
	"GH200-96GB":    {name: "NVIDIA GH200 480GB", memoryMiB: 97871, multiprocessors: h100SMs},
	"GH200-144GB": {
		name: "NVIDIA GH200 144G HBM3e", memoryMiB: 147456, multiprocessors: h100SMs,
		memory: map[int]int64{1: 17920, 2: 36096}, // 17.50 and 35.25 GiB
	},
	"H200-141GB": {
		name: "NVIDIA H200", memoryMiB: 143771, multiprocessors: h100SMs,
		memory: map[int]int64{1: 16384, 2: 33024, 4: 71168, 8: 143104},
	},
	"B200-180GB": {
		name: "NVIDIA B200", memoryMiB: 183359, multiprocessors: b200SMs,
		memory: map[int]int64{1: 22528, 2: 45312}, // 22.00 GiB, on another driver 20.50 (NVIDIA/gpu-operator #1351), and 44.25 GiB
	},
	"GB200-186GB": {
		name: "NVIDIA GB200", memoryMiB: 189471, multiprocessors: gb200SMs,
		memory: map[int]int64{1: 22528, 2: 46592}, // 22.00 GiB, on another driver 20.00, and 45.50 GiB
	},
	"B300-269GB":  {name: "NVIDIA B300", memoryMiB: 275040, multiprocessors: b200SMs},
	"GB300-278GB": {name: "NVIDIA GB300", memoryMiB: 284208, multiprocessors: gb200SMs},
	"RTX-PRO-6000": {
		name: "NVIDIA RTX PRO 6000 Blackwell Server Edition", memoryMiB: 97887, multiprocessors: []int{46, 94, 188},
		memory: map[int]int64{1: 24192, 2: 48512, 4: 97280}, // 23.62, 47.38 and 95.00 GiB
	},
}

// modelsWithoutMIG are GPU models without MIG.
var modelsWithoutMIG = map[string]modelSpec{
	"L4":   {name: "NVIDIA L4", device: 0x27b8, memoryMiB: 23034},
	"L40S": {name: "NVIDIA L40S", device: 0x26b9, memoryMiB: 46068},
	"T4":   {name: "Tesla T4", device: 0x1eb8, memoryMiB: 15360},
	"V100": {name: "Tesla V100-SXM2-32GB", device: 0x1db5, memoryMiB: 32768},
}

// modelByName returns the GPU model with a name, in any case.
func modelByName(name string) (*modelSpec, error) {
	if model, ok := mig.ModelByName(name); ok {
		if m, ok := migModels[model.Name]; ok {
			m.migModel = model
			if m.device == 0 {
				m.device = model.Devices[0]
			}
			return &m, nil
		}
	}
	for known, m := range modelsWithoutMIG {
		if strings.EqualFold(known, name) {
			return &m, nil
		}
	}
	return nil, fmt.Errorf("unknown GPU model %q; known are %s", name, strings.Join(Models(), ", "))
}

// Models returns the names for [GPU.Model]: first the GPU models with MIG, as package mig names
// them, then those without.
func Models() []string {
	var names []string
	for _, model := range mig.Models() {
		if _, ok := migModels[model.Name]; ok {
			names = append(names, model.Name)
		}
	}
	return append(names, "L4", "L40S", "T4", "V100")
}

// instanceMemory returns the memory of an instance of a profile.
func (m *modelSpec) instanceMemory(p *mig.Profile) int64 {
	if memory, ok := m.memory[p.Memory]; ok {
		return memory
	}
	return min(p.MemoryMiB, m.memoryMiB*int64(p.Memory)/int64(m.migModel.Slices))
}

// multiprocessorsOf returns the number of multiprocessors of an instance of a profile.
func (m *modelSpec) multiprocessorsOf(p *mig.Profile) int {
	at := 0
	for i := range m.migModel.Profiles {
		if plain := &m.migModel.Profiles[i]; plain.Attribute == "" {
			if plain.Compute == p.Compute && plain.Memory == p.Memory {
				break
			}
			at++
		}
	}
	return m.multiprocessors[at]
}

// profileByNVMLID returns the profile with an identifier, or nil.
func (m *modelSpec) profileByNVMLID(id uint32) *mig.Profile {
	for i := range m.migModel.Profiles {
		if m.migModel.Profiles[i].ID == id {
			return &m.migModel.Profiles[i]
		}
	}
	return nil
}
