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

// minListCapacity is the least capacity of a list for the binding. The binding trusts the driver's
// count, which is wrong for some GPU models, and panics if it is zero.
const minListCapacity = 16

// Instances implements nvml.Library.
func (l *library) Instances(gpu string) ([]nvml.Instance, error) {
	return withGPU(l, gpu, func(dev *device) ([]nvml.Instance, error) {
		// An older driver returns no profiles, no instances and no error while the mode is off.
		modes, err := l.readMode(dev)
		if err != nil {
			return nil, err
		}
		if modes.current != nvml.Enabled {
			return nil, fmt.Errorf("MIG mode is off: %w", nvml.ErrNotSupported)
		}
		all, err := l.cachedProfiles(dev)
		if err != nil {
			return nil, err
		}
		return l.listInstances(dev, all)
	})
}

func (l *library) listInstances(dev *device, all []driverProfile) ([]nvml.Instance, error) {
	instances := []nvml.Instance{}
	var refusal error
	answered := false
	for _, p := range all {
		if answered && !p.hasRoom(instances) {
			continue // No instance of this profile can exist beside those found.
		}
		p.info.InstanceCount = max(p.info.InstanceCount, minListCapacity)
		found, err := callValue(l, "nvmlDeviceGetGpuInstances", func() ([]gonvml.GpuInstance, gonvml.Return) {
			return dev.GetGpuInstances(&p.info)
		})
		if errors.Is(err, nvml.ErrNotSupported) {
			refusal = err
			continue
		}
		if err != nil {
			return nil, err
		}
		answered = true
		for _, handle := range found {
			it, err := l.readInstance(handle)
			switch {
			case errors.Is(err, nvml.ErrNotFound): // destroyed meanwhile
			case err != nil:
				return nil, err
			case !slices.ContainsFunc(instances, func(other nvml.Instance) bool { return other.ID == it.ID }):
				instances = append(instances, it)
			}
		}
	}
	if !answered && refusal != nil {
		return nil, refusal
	}
	slices.SortFunc(instances, func(a, b nvml.Instance) int {
		return cmp.Or(cmp.Compare(a.Placement.Start, b.Placement.Start), cmp.Compare(a.ID, b.ID))
	})
	return instances, nil
}

// hasRoom reports whether an instance of the profile fits beside the instances, as far as the driver
// reports its places.
func (p *driverProfile) hasRoom(instances []nvml.Instance) bool {
	return len(p.placements) == 0 || slices.ContainsFunc(p.placements, func(place nvml.Placement) bool {
		return !slices.ContainsFunc(instances, func(it nvml.Instance) bool {
			return it.Placement.Start < place.Start+place.Size && place.Start < it.Placement.Start+it.Placement.Size
		})
	})
}

func (l *library) readInstance(handle gonvml.GpuInstance) (nvml.Instance, error) {
	info, err := callValue(l, "nvmlGpuInstanceGetInfo", handle.GetInfo)
	return nvml.Instance{
		ID:        info.Id,
		Profile:   nvml.ProfileID(info.ProfileId),
		Placement: nvml.Placement{Start: int(info.Placement.Start), Size: int(info.Placement.Size)},
	}, err
}

// CreateInstance implements nvml.Library.
func (l *library) CreateInstance(gpu string, id nvml.ProfileID, at nvml.Placement) (nvml.Instance, error) {
	return withGPU(l, gpu, func(dev *device) (nvml.Instance, error) {
		p, err := l.profileByID(dev, id)
		if err != nil {
			return nvml.Instance{}, err
		}
		if !slices.Contains(p.placements, at) {
			return nvml.Instance{}, fmt.Errorf("profile %d cannot start at %d with %d slices, only at %v: %w",
				id, at.Start, at.Size, p.placements, nvml.ErrInvalidArgument)
		}
		handle, err := callValue(l, "nvmlDeviceCreateGpuInstanceWithPlacement", func() (gonvml.GpuInstance, gonvml.Return) {
			return dev.CreateGpuInstanceWithPlacement(&p.info, &gonvml.GpuInstancePlacement{Start: uint32(at.Start), Size: uint32(at.Size)})
		})
		if err != nil {
			return nvml.Instance{}, err
		}
		it, err := l.readInstance(handle)
		if err != nil {
			return nvml.Instance{}, fmt.Errorf("an instance of profile %d was created at %d, but cannot be read: %w", id, at.Start, err)
		}
		return it, nil
	})
}

// DestroyInstance implements nvml.Library.
func (l *library) DestroyInstance(gpu string, instance uint32) error {
	_, err := withGPU(l, gpu, func(dev *device) (struct{}, error) {
		handle, err := l.instanceHandle(dev, instance)
		if err != nil {
			return struct{}{}, err
		}
		dev.utilization.drop(instance) // The driver reuses the identifier.
		return struct{}{}, l.call("nvmlGpuInstanceDestroy", handle.Destroy)
	})
	return err
}

// instanceHandle looks up the handle for each call: the driver reuses identifiers for other
// handles.
func (l *library) instanceHandle(dev *device, instance uint32) (gonvml.GpuInstance, error) {
	handle, err := callValue(l, "nvmlDeviceGetGpuInstanceById", func() (gonvml.GpuInstance, gonvml.Return) {
		return dev.GetGpuInstanceById(int(instance))
	})
	if err != nil {
		return nil, fmt.Errorf("GPU instance %d: %w", instance, err)
	}
	return handle, nil
}
