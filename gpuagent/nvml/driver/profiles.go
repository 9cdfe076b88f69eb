// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// driverProfile is a profile with the library's index, which is not its identifier.
type driverProfile struct {
	index      int
	info       gonvml.GpuInstanceProfileInfo
	placements []nvml.Placement
}

// maxProfileIndex ends the search for profiles if the library never reports the end.
const maxProfileIndex = 64

// cachedProfiles returns all profiles of a GPU. It caches them with the handle once they are known.
func (l *library) cachedProfiles(dev *device) ([]driverProfile, error) {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if dev.profiles != nil {
		return dev.profiles, nil
	}
	found, err := l.readProfiles(dev)
	if err != nil {
		return nil, err
	}
	complete := !slices.ContainsFunc(found, func(p driverProfile) bool { return len(p.placements) == 0 })
	if complete && len(found) > 0 { // An older driver returns more once MIG mode is on.
		dev.profiles = found
	}
	return found, nil
}

func (l *library) readProfiles(dev *device) ([]driverProfile, error) {
	var found []driverProfile
	for index := range maxProfileIndex {
		info, err := callValue(l, "nvmlDeviceGetGpuInstanceProfileInfo", func() (gonvml.GpuInstanceProfileInfo, gonvml.Return) {
			return dev.GetGpuInstanceProfileInfo(index)
		})
		switch {
		case errors.Is(err, nvml.ErrInvalidArgument):
			return found, nil
		case errors.Is(err, nvml.ErrNotSupported):
			continue
		case err != nil:
			return nil, err
		case slices.ContainsFunc(found, func(p driverProfile) bool { return p.info.Id == info.Id }):
			continue
		}
		p := driverProfile{index: index, info: info}
		if p.placements, err = l.readPlacements(dev, info); err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	return found, nil
}

// readPlacements returns the places of a profile's instances, the lowest first; none if the driver
// does not know them.
func (l *library) readPlacements(dev *device, info gonvml.GpuInstanceProfileInfo) ([]nvml.Placement, error) {
	found, err := callValue(l, "nvmlDeviceGetGpuInstancePossiblePlacements", func() ([]gonvml.GpuInstancePlacement, gonvml.Return) {
		return dev.GetGpuInstancePossiblePlacements(&info)
	})
	if err != nil {
		if errors.Is(err, nvml.ErrNotSupported) || errors.Is(err, nvml.ErrInvalidArgument) {
			return nil, nil
		}
		return nil, err
	}
	places := make([]nvml.Placement, len(found))
	for i, p := range found {
		places[i] = nvml.Placement{Start: int(p.Start), Size: int(p.Size)}
	}
	slices.SortFunc(places, func(a, b nvml.Placement) int { return cmp.Compare(a.Start, b.Start) })
	return places, nil
}

// profileByID returns a profile by its identifier; ErrInvalidArgument if the GPU lacks it.
func (l *library) profileByID(dev *device, id nvml.ProfileID) (driverProfile, error) {
	all, err := l.cachedProfiles(dev)
	if err != nil {
		return driverProfile{}, err
	}
	for _, p := range all {
		if p.info.Id == uint32(id) {
			return p, nil
		}
	}
	return driverProfile{}, fmt.Errorf("it has no MIG profile %d: %w", id, nvml.ErrInvalidArgument)
}

// Profiles implements nvml.Library. It omits profiles without a known place, which no instance can
// have.
func (l *library) Profiles(gpu string) ([]nvml.Profile, error) {
	return withGPU(l, gpu, func(dev *device) ([]nvml.Profile, error) {
		all, err := l.cachedProfiles(dev)
		if err != nil {
			return nil, err
		}
		var profiles []nvml.Profile
		for _, p := range all {
			if len(p.placements) > 0 {
				profiles = append(profiles, p.toProfile())
			}
		}
		return profiles, nil
	})
}

// Placements implements nvml.Library.
func (l *library) Placements(gpu string, id nvml.ProfileID) ([]nvml.Placement, error) {
	return withGPU(l, gpu, func(dev *device) ([]nvml.Placement, error) {
		p, err := l.profileByID(dev, id)
		return slices.Clone(p.placements), err
	})
}

// RemainingCapacity implements nvml.Library.
func (l *library) RemainingCapacity(gpu string, id nvml.ProfileID) (int, error) {
	return withGPU(l, gpu, func(dev *device) (int, error) {
		p, err := l.profileByID(dev, id)
		if err != nil {
			return 0, err
		}
		return callValue(l, "nvmlDeviceGetGpuInstanceRemainingCapacity", func() (int, gonvml.Return) {
			return dev.GetGpuInstanceRemainingCapacity(&p.info)
		})
	})
}

// profileAttributes are the attributes of the profiles by their index in nvml.h.
var profileAttributes = map[int]string{
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

// toProfile converts a profile. Its slices follow from its places and the driver's compute slices,
// never from its name, which drivers round differently.
func (p *driverProfile) toProfile() nvml.Profile {
	attribute, known := profileAttributes[p.index]
	if !known { // An unknown attribute of a newer driver, which no request has.
		attribute = fmt.Sprintf("+unknown%d", p.index)
	}
	starts := make([]int, len(p.placements))
	for i, place := range p.placements {
		starts[i] = place.Start
	}
	return nvml.Profile{
		ID:              nvml.ProfileID(p.info.Id),
		Compute:         int(p.info.SliceCount),
		Memory:          p.placements[0].Size,
		Attribute:       attribute,
		Starts:          starts,
		Max:             p.maxInstances(attribute),
		MemoryMiB:       int64(p.info.MemorySizeMB),
		Multiprocessors: int(p.info.MultiprocessorCount),
	}
}

// maxInstances returns the number of instances on an empty GPU: as many as fit beside each other, one with
// media extensions, which a GPU has once, and no more of the other attributes than the driver counts. The
// driver's count of plain profiles is wrong on an A30, and zero on some drivers.
func (p *driverProfile) maxInstances(attribute string) int {
	if attribute == "+me" || attribute == "+me.all" {
		return 1
	}
	room, free := 0, 0
	for _, place := range p.placements {
		if place.Start >= free {
			room, free = room+1, place.Start+place.Size
		}
	}
	if attribute != "" && p.info.InstanceCount > 0 {
		room = min(room, int(p.info.InstanceCount))
	}
	return room
}
