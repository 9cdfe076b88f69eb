// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// ComputeInstances implements nvml.Library.
func (l *library) ComputeInstances(gpu string, instance uint32) ([]nvml.ComputeInstance, error) {
	return withGPU(l, gpu, func(dev *device) ([]nvml.ComputeInstance, error) {
		handle, err := l.instanceHandle(dev, instance)
		if err != nil {
			return nil, err
		}
		profiles, err := l.computeProfiles(handle)
		if err != nil {
			return nil, err
		}
		instances := []nvml.ComputeInstance{}
		for _, info := range profiles {
			info.InstanceCount = max(info.InstanceCount, minListCapacity)
			found, err := callValue(l, "nvmlGpuInstanceGetComputeInstances", func() ([]gonvml.ComputeInstance, gonvml.Return) {
				return handle.GetComputeInstances(&info)
			})
			if err != nil {
				return nil, err
			}
			for _, compute := range found {
				it, err := l.readComputeInstance(dev, instance, compute, profiles)
				switch {
				case errors.Is(err, nvml.ErrNotFound): // destroyed meanwhile
				case err != nil:
					return nil, err
				case !slices.ContainsFunc(instances, func(other nvml.ComputeInstance) bool { return other.ID == it.ID }):
					instances = append(instances, it)
				}
			}
		}
		slices.SortFunc(instances, func(a, b nvml.ComputeInstance) int { return cmp.Compare(a.ID, b.ID) })
		return instances, nil
	})
}

// CreateComputeInstance implements nvml.Library.
func (l *library) CreateComputeInstance(gpu string, instance uint32) (nvml.ComputeInstance, error) {
	return withGPU(l, gpu, func(dev *device) (nvml.ComputeInstance, error) {
		handle, err := l.instanceHandle(dev, instance)
		if err != nil {
			return nvml.ComputeInstance{}, err
		}
		profiles, err := l.computeProfiles(handle)
		if err != nil {
			return nvml.ComputeInstance{}, err
		}
		info, err := l.fullComputeProfile(dev, handle, profiles)
		if err != nil {
			return nvml.ComputeInstance{}, fmt.Errorf("GPU instance %d: %w", instance, err)
		}
		compute, err := callValue(l, "nvmlGpuInstanceCreateComputeInstance", func() (gonvml.ComputeInstance, gonvml.Return) {
			return handle.CreateComputeInstance(&info)
		})
		if err != nil {
			return nvml.ComputeInstance{}, err
		}
		it, err := l.readComputeInstance(dev, instance, compute, profiles)
		if err != nil {
			return nvml.ComputeInstance{}, fmt.Errorf("a compute instance was created on GPU instance %d, but cannot be read: %w", instance, err)
		}
		return it, nil
	})
}

// DestroyComputeInstance implements nvml.Library.
func (l *library) DestroyComputeInstance(gpu string, instance, compute uint32) error {
	_, err := withGPU(l, gpu, func(dev *device) (struct{}, error) {
		handle, err := l.instanceHandle(dev, instance)
		if err != nil {
			return struct{}{}, err
		}
		it, err := callValue(l, "nvmlGpuInstanceGetComputeInstanceById", func() (gonvml.ComputeInstance, gonvml.Return) {
			return handle.GetComputeInstanceById(int(compute))
		})
		if err != nil {
			return struct{}{}, fmt.Errorf("compute instance %d of GPU instance %d: %w", compute, instance, err)
		}
		return struct{}{}, l.call("nvmlComputeInstanceDestroy", it.Destroy)
	})
	return err
}

// computeProfiles returns the compute instance profiles of a GPU instance with shared engines. No
// other profiles exist.
func (l *library) computeProfiles(handle gonvml.GpuInstance) ([]gonvml.ComputeInstanceProfileInfo, error) {
	var profiles []gonvml.ComputeInstanceProfileInfo
	for index := range maxProfileIndex {
		info, err := callValue(l, "nvmlGpuInstanceGetComputeInstanceProfileInfo", func() (gonvml.ComputeInstanceProfileInfo, gonvml.Return) {
			return handle.GetComputeInstanceProfileInfo(index, gonvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		})
		switch {
		case errors.Is(err, nvml.ErrInvalidArgument):
			return profiles, nil
		case errors.Is(err, nvml.ErrNotSupported):
		case err != nil:
			return nil, err
		default:
			profiles = append(profiles, info)
		}
	}
	return profiles, nil
}

// fullComputeProfile returns the compute instance profile with all slices of the GPU instance.
func (l *library) fullComputeProfile(dev *device, handle gonvml.GpuInstance,
	profiles []gonvml.ComputeInstanceProfileInfo,
) (gonvml.ComputeInstanceProfileInfo, error) {
	it, err := l.readInstance(handle)
	if err != nil {
		return gonvml.ComputeInstanceProfileInfo{}, err
	}
	of, err := l.profileByID(dev, it.Profile)
	if err != nil {
		return gonvml.ComputeInstanceProfileInfo{}, err
	}
	for _, info := range profiles {
		if info.SliceCount == of.info.SliceCount {
			return info, nil
		}
	}
	return gonvml.ComputeInstanceProfileInfo{}, fmt.Errorf(
		"the driver has no compute instance with all of its %d slices: %w", of.info.SliceCount, nvml.ErrNotSupported)
}

// readComputeInstance reads a compute instance of one of the profiles.
func (l *library) readComputeInstance(dev *device, instance uint32, handle gonvml.ComputeInstance,
	profiles []gonvml.ComputeInstanceProfileInfo,
) (nvml.ComputeInstance, error) {
	info, err := callValue(l, "nvmlComputeInstanceGetInfo", handle.GetInfo)
	if err != nil {
		return nvml.ComputeInstance{}, err
	}
	it := nvml.ComputeInstance{ID: info.Id}
	it.Slices = int(info.Placement.Size) // older drivers do not report it
	if at := slices.IndexFunc(profiles, func(p gonvml.ComputeInstanceProfileInfo) bool { return p.Id == info.ProfileId }); at >= 0 {
		it.Slices = int(profiles[at].SliceCount)
	}
	if it.Slices == 0 {
		return it, fmt.Errorf("compute instance %d of GPU instance %d has the profile %d, which the driver does not describe: %w",
			info.Id, instance, info.ProfileId, nvml.ErrUnknown)
	}
	if info.Device != nil {
		if it.UUID, err = callValue(l, "nvmlDeviceGetUUID", info.Device.GetUUID); err == nil && strings.HasPrefix(it.UUID, "MIG-") {
			return it, nil
		}
	}
	it.UUID, err = l.findMIGDevice(dev, instance, info.Id)
	return it, err
}

// findMIGDevice searches a GPU's MIG devices for that of a compute instance, if the driver does not
// name it. It is slow on a busy GPU.
func (l *library) findMIGDevice(dev *device, instance, compute uint32) (string, error) {
	count, err := callValue(l, "nvmlDeviceGetMaxMigDeviceCount", dev.GetMaxMigDeviceCount)
	if err != nil {
		return "", err
	}
	for index := range count {
		handle, err := callValue(l, "nvmlDeviceGetMigDeviceHandleByIndex", func() (gonvml.Device, gonvml.Return) {
			return dev.GetMigDeviceHandleByIndex(index)
		})
		if errors.Is(err, nvml.ErrNotFound) || errors.Is(err, nvml.ErrInvalidArgument) {
			continue // indices may have gaps
		}
		if err != nil {
			return "", err
		}
		gi, err := callValue(l, "nvmlDeviceGetGpuInstanceId", handle.GetGpuInstanceId)
		if err != nil {
			return "", err
		}
		ci, err := callValue(l, "nvmlDeviceGetComputeInstanceId", handle.GetComputeInstanceId)
		if err != nil {
			return "", err
		}
		if uint32(gi) == instance && uint32(ci) == compute {
			return callValue(l, "nvmlDeviceGetUUID", handle.GetUUID)
		}
	}
	return "", fmt.Errorf("no MIG device of compute instance %d of GPU instance %d: %w", compute, instance, nvml.ErrNotFound)
}
