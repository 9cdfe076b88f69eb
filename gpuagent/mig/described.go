// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sluice.dev/api/v1alpha1"
)

// maxSlices is the number of memory slices of the largest GPU.
const maxSlices = 8

// describedModels holds the models that drivers describe, so that equal descriptions are one model with
// the same profiles.
var describedModels struct {
	sync.Mutex
	byDescription map[string]*Model
	// byObservation holds the results of ObservedModel by what it reads: most GPUs are observed again unchanged.
	byObservation map[string]*Model
}

// maxDescribedModels bounds each of the two. A cluster has a few models, each with the names of a few drivers.
const maxDescribedModels = 256

// DescribedModel returns the model of a GPU by the profiles that its driver describes. It ignores
// impossible profiles, and those of an unknown attribute, which no request can name. Without any profile
// it returns the model of the built-in table, or nil.
func DescribedModel(pciDevice uint32, name string, memoryMiB int64, profiles []Profile) *Model {
	known, _ := ModelByPCIDevice(pciDevice)
	b := &Model{Name: name, MemoryGB: int((memoryMiB + 1023) / 1024), ModeWithoutReset: isHopperOrLater(pciDevice)}
	if known != nil {
		b.Name, b.MemoryGB, b.ModeWithoutReset = known.Name, known.MemoryGB, known.ModeWithoutReset
	}
	for _, p := range profiles {
		if !p.isPossible() || slices.ContainsFunc(b.Profiles, func(q Profile) bool { return q.Shape == p.Shape || q.Name == p.Name }) {
			continue
		}
		for _, start := range p.Starts {
			b.Slices = max(b.Slices, start+p.Memory)
		}
		b.Profiles = append(b.Profiles, p)
	}
	if len(b.Profiles) == 0 {
		return known
	}
	slices.SortFunc(b.Profiles, func(p, q Profile) int {
		return cmp.Or(cmp.Compare(p.Memory, q.Memory), cmp.Compare(p.Compute, q.Compute), strings.Compare(p.Attribute, q.Attribute))
	})
	description, err := json.Marshal(b)
	if err != nil {
		return known
	}
	describedModels.Lock()
	defer describedModels.Unlock()
	if same := describedModels.byDescription[string(description)]; same != nil {
		return same
	}
	if len(describedModels.byDescription) >= maxDescribedModels {
		return known
	}
	if describedModels.byDescription == nil {
		describedModels.byDescription = map[string]*Model{}
	}
	describedModels.byDescription[string(description)] = b.initProfiles()
	return b
}

// ObservedModel returns the model of a GPU in a GPUNode, as its agent reports the driver's description;
// without one, that of the built-in table, or nil.
func ObservedModel(gpu *v1alpha1.ObservedGPU) *Model {
	key := observationKey(gpu)
	describedModels.Lock()
	model, known := describedModels.byObservation[string(key)]
	describedModels.Unlock()
	if known {
		return model
	}
	profiles := make([]Profile, 0, len(gpu.MIGPlacements))
	for i := range gpu.MIGPlacements {
		at := &gpu.MIGPlacements[i]
		p := Profile{Name: at.Profile, Max: int(at.Max)}
		p.Compute, _, p.Attribute = parseName(at.Profile)
		p.Memory = int(at.Size)
		for _, start := range at.Starts {
			p.Starts = append(p.Starts, int(start))
		}
		profiles = append(profiles, p)
	}
	model = DescribedModel(parseDeviceID(gpu.DeviceID), gpu.Model, gpu.MemoryMiB, profiles)
	describedModels.Lock()
	defer describedModels.Unlock()
	if describedModels.byObservation == nil || len(describedModels.byObservation) >= maxDescribedModels {
		describedModels.byObservation = map[string]*Model{}
	}
	describedModels.byObservation[string(key)] = model
	return model
}

// observationKey returns everything that ObservedModel reads. Texts follow their length, lists their number.
func observationKey(gpu *v1alpha1.ObservedGPU) []byte {
	key := make([]byte, 0, 512)
	number := func(n int64) { key = binary.AppendVarint(key, n) }
	text := func(text string) { number(int64(len(text))); key = append(key, text...) }
	text(gpu.DeviceID)
	text(gpu.Model)
	number(gpu.MemoryMiB)
	for i := range gpu.MIGPlacements {
		at := &gpu.MIGPlacements[i]
		text(string(at.Profile))
		number(int64(at.Size))
		number(int64(at.Max))
		number(int64(len(at.Starts)))
		for _, start := range at.Starts {
			number(int64(start))
		}
	}
	return key
}

// Placements returns the model's profiles and their places for a GPUNode.
func (b *Model) Placements() []v1alpha1.MIGPlacement {
	list := make([]v1alpha1.MIGPlacement, 0, len(b.Profiles))
	for i := range b.Profiles {
		p := &b.Profiles[i]
		at := v1alpha1.MIGPlacement{Profile: p.Name, Size: int32(p.Memory), Max: int32(p.Max)}
		for _, start := range p.Starts {
			at.Starts = append(at.Starts, int32(start))
		}
		list = append(list, at)
	}
	return list
}

// isPossible reports whether a profile has a valid name and fits a GPU, and a GPUNode accepts it: each start
// is listed once, the lowest first.
func (p *Profile) isPossible() bool {
	compute, _, attribute := parseName(p.Name)
	if compute == 0 || compute != p.Compute || attribute != p.Attribute || p.Memory < 1 || p.Max < 1 || p.Max > maxSlices {
		return false
	}
	last := -1
	for _, start := range p.Starts {
		if start <= last || start+p.Memory > maxSlices {
			return false
		}
		last = start
	}
	return last >= 0
}

// isHopperOrLater reports whether the MIG mode of an unknown model changes without a reset: identifiers
// of Ampere GPUs with MIG begin with 0x20, those of Hopper with 0x23, and later ones are higher.
func isHopperOrLater(pciDevice uint32) bool { return pciDevice>>16 >= 0x2300 }

// parseDeviceID returns the PCI device of an identifier in the GPUNode's form, 0x233010DE, or 0.
func parseDeviceID(text string) uint32 {
	digits, _ := strings.CutPrefix(strings.ToLower(text), "0x")
	id, err := strconv.ParseUint(digits, 16, 32)
	if err != nil {
		return 0
	}
	return uint32(id)
}
