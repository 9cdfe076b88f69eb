// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// attributes are what the profiles of an index of nvml.h have besides their slices.
var attributes = map[int]string{
	gonvml.GPU_INSTANCE_PROFILE_1_SLICE:        "",
	gonvml.GPU_INSTANCE_PROFILE_2_SLICE:        "",
	gonvml.GPU_INSTANCE_PROFILE_3_SLICE:        "",
	gonvml.GPU_INSTANCE_PROFILE_4_SLICE:        "",
	gonvml.GPU_INSTANCE_PROFILE_6_SLICE:        "",
	gonvml.GPU_INSTANCE_PROFILE_7_SLICE:        "",
	gonvml.GPU_INSTANCE_PROFILE_8_SLICE:        "",
	gonvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   "+me",
	gonvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:   "+me",
	gonvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2:   "", // twice the memory
	gonvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    "+gfx",
	gonvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX:    "+gfx",
	gonvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:    "+gfx",
	gonvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  "-me",
	gonvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:  "-me",
	gonvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
	gonvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}

// describe is the profile in Sluice's terms. Its slices come from where it may lie and
// what the driver says it computes on, never from a name, in which drivers round
// differently.
func (p *profile) describe(board *mig.Board) nvml.Profile {
	attribute, known := attributes[p.index]
	if !known { // of a driver that is newer than this: like none that is asked for
		attribute = fmt.Sprintf("+unknown%d", p.index)
	}
	shape := mig.Shape{Compute: int(p.info.SliceCount), Memory: p.places[0].Size, Attribute: attribute}
	return nvml.Profile{
		ID:              nvml.ProfileID(p.info.Id),
		Compute:         shape.Compute,
		Memory:          shape.Memory,
		Attribute:       attribute,
		Max:             p.most(board, shape),
		MemoryMiB:       int64(p.info.MemorySizeMB),
		Multiprocessors: int(p.info.MultiprocessorCount),
	}
}

// most is how many instances an empty GPU has room for: as the board's table has it,
// else as many as lie beside each other. The count that the driver gives is wrong on an
// A30; it only limits profiles that there are few of for another reason than room.
func (p *profile) most(board *mig.Board, shape mig.Shape) int {
	if board != nil {
		for _, known := range board.Profiles {
			if known.Shape == shape {
				return known.Max
			}
		}
	}
	room, free := 0, 0
	for _, place := range p.places {
		if place.Start >= free {
			room, free = room+1, place.Start+place.Size
		}
	}
	if shape.Attribute != "" && p.info.InstanceCount > 0 {
		room = min(room, int(p.info.InstanceCount))
	}
	return room
}
