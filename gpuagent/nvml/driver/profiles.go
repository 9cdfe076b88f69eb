// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// profile is one that a board has: what the library says of it, by the index at which it
// was found, which is not its identifier.
type profile struct {
	index  int
	info   gonvml.GpuInstanceProfileInfo
	places []nvml.Placement
}

// mostProfiles is where the search for profiles ends if no library ever says that there
// are no more.
const mostProfiles = 64

// profiles are all that a GPU has. They are kept with its handle once they are known.
func (l *library) profiles(dev *device) ([]profile, error) {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if dev.profiles != nil {
		return dev.profiles, nil
	}
	found, err := l.search(dev)
	if err != nil {
		return nil, err
	}
	complete := !slices.ContainsFunc(found, func(p profile) bool { return len(p.places) == 0 })
	if complete && len(found) > 0 { // an older driver knows more once MIG mode is on
		dev.profiles = found
	}
	return found, nil
}

func (l *library) search(dev *device) ([]profile, error) {
	var found []profile
	for index := range mostProfiles {
		info, err := ask(l, "nvmlDeviceGetGpuInstanceProfileInfo", func() (gonvml.GpuInstanceProfileInfo, gonvml.Return) {
			return dev.GetGpuInstanceProfileInfo(index)
		})
		switch {
		case errors.Is(err, nvml.ErrInvalidArgument):
			return found, nil
		case errors.Is(err, nvml.ErrNotSupported):
			continue
		case err != nil:
			return nil, err
		case slices.ContainsFunc(found, func(p profile) bool { return p.info.Id == info.Id }):
			continue
		}
		p := profile{index: index, info: info}
		if p.places, err = l.places(dev, info); err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	return found, nil
}

// places are where instances of a profile may lie, the lowest first; none where the driver
// does not know.
func (l *library) places(dev *device, info gonvml.GpuInstanceProfileInfo) ([]nvml.Placement, error) {
	found, err := ask(l, "nvmlDeviceGetGpuInstancePossiblePlacements", func() ([]gonvml.GpuInstancePlacement, gonvml.Return) {
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

// profile is one by its identifier; ErrInvalidArgument where the board has none such.
func (l *library) profile(dev *device, id nvml.ProfileID) (profile, error) {
	all, err := l.profiles(dev)
	if err != nil {
		return profile{}, err
	}
	for _, p := range all {
		if p.info.Id == uint32(id) {
			return p, nil
		}
	}
	return profile{}, fmt.Errorf("it has no MIG profile %d: %w", id, nvml.ErrInvalidArgument)
}

// Profiles implements nvml.Library. A profile of which the driver does not know where its
// instances may lie is left out: none can be made of it.
func (l *library) Profiles(gpu string) ([]nvml.Profile, error) {
	return on(l, gpu, func(dev *device) ([]nvml.Profile, error) {
		all, err := l.profiles(dev)
		if err != nil {
			return nil, err
		}
		pci, err := ask(l, "nvmlDeviceGetPciInfo", dev.GetPciInfo)
		if err != nil {
			return nil, err
		}
		board, _ := mig.BoardOf(pci.PciDeviceId)
		var profiles []nvml.Profile
		for _, p := range all {
			if len(p.places) > 0 {
				profiles = append(profiles, p.describe(board))
			}
		}
		return profiles, nil
	})
}

// Placements implements nvml.Library.
func (l *library) Placements(gpu string, id nvml.ProfileID) ([]nvml.Placement, error) {
	return on(l, gpu, func(dev *device) ([]nvml.Placement, error) {
		p, err := l.profile(dev, id)
		return slices.Clone(p.places), err
	})
}

// RemainingCapacity implements nvml.Library.
func (l *library) RemainingCapacity(gpu string, id nvml.ProfileID) (int, error) {
	return on(l, gpu, func(dev *device) (int, error) {
		p, err := l.profile(dev, id)
		if err != nil {
			return 0, err
		}
		return ask(l, "nvmlDeviceGetGpuInstanceRemainingCapacity", func() (int, gonvml.Return) {
			return dev.GetGpuInstanceRemainingCapacity(&p.info)
		})
	})
}
