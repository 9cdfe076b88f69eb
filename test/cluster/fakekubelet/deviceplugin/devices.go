// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin is NVIDIA's device plugin, and GPU feature discovery beside it, as far as
// they look at GPUs: both with MIG strategy "mixed".
//
// What enters is the driver. What leaves is what they see at that moment (Look), the
// devices that the plugin would report of it, and the labels that feature discovery
// would write. The package never changes a GPU, never remembers what it saw, and
// decides nothing about who is given what.
package deviceplugin

import (
	"errors"
	"fmt"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/test/cluster/fakekubelet/devices"
)

// GPU is one GPU as the plugin sees it.
type GPU struct {
	nvml.GPU
	// Partitioned tells that it is in MIG mode; else it is a device itself.
	Partitioned bool
	// Instances are those that are devices, by their first memory slice.
	Instances []Instance
}

// Instance is a GPU instance with a compute instance on it.
type Instance struct {
	// Name is its profile's: "1g.5gb".
	Name v1alpha1.MIGProfile
	// UUID is the MIG device's: "MIG-...".
	UUID string
	// Profile is what the driver says of the profile.
	Profile nvml.Profile
}

// ReadGPUs returns the node's GPUs by index. One that the driver does not reach is left out,
// and so is an instance without a compute instance: nobody can be given it.
func ReadGPUs(driver nvml.Library) ([]GPU, error) {
	found, err := driver.GPUs()
	if err != nil {
		return nil, fmt.Errorf("looking for GPUs: %w", err)
	}
	var list []GPU
	for _, each := range found {
		gpu, err := readGPU(driver, each)
		switch {
		case errors.Is(err, nvml.ErrGPULost):
		case err != nil:
			return nil, fmt.Errorf("looking at GPU %s: %w", each.UUID, err)
		default:
			list = append(list, gpu)
		}
	}
	return list, nil
}

func readGPU(driver nvml.Library, found nvml.GPU) (GPU, error) {
	gpu := GPU{GPU: found}
	if found.Err != nil {
		return gpu, found.Err
	}
	mode, _, err := driver.MIGMode(found.UUID)
	switch {
	case errors.Is(err, nvml.ErrNotSupported):
		return gpu, nil
	case err != nil:
		return gpu, err
	}
	if gpu.Partitioned = mode == nvml.Enabled; !gpu.Partitioned {
		return gpu, nil
	}
	profiles, err := profilesOf(driver, found)
	if err != nil {
		return gpu, err
	}
	instances, err := driver.Instances(found.UUID)
	if err != nil {
		return gpu, err
	}
	for _, each := range instances {
		computes, err := driver.ComputeInstances(found.UUID, each.ID)
		if errors.Is(err, nvml.ErrNotFound) {
			continue // it went since
		}
		if err != nil {
			return gpu, err
		}
		for _, compute := range computes {
			instance := profiles[each.Profile]
			instance.UUID = compute.UUID
			gpu.Instances = append(gpu.Instances, instance)
		}
	}
	return gpu, nil
}

// profilesOf are the profiles of a GPU by what the driver calls them.
func profilesOf(driver nvml.Library, gpu nvml.GPU) (map[nvml.ProfileID]Instance, error) {
	board, known := mig.ModelByPCIDevice(gpu.PCIDevice)
	if !known {
		return nil, fmt.Errorf("board %#08x is in MIG mode, and not known", gpu.PCIDevice)
	}
	list, err := driver.Profiles(gpu.UUID)
	if err != nil {
		return nil, err
	}
	profiles := map[nvml.ProfileID]Instance{}
	for _, profile := range list {
		shape := mig.Shape{Compute: profile.Compute, Memory: profile.Memory, Attribute: profile.Attribute}
		for i := range board.Profiles {
			if board.Profiles[i].Shape == shape {
				profiles[profile.ID] = Instance{Name: board.Profiles[i].Name, Profile: profile}
			}
		}
	}
	return profiles, nil
}

// IsResource reports whether the plugin counts devices under this name, on this node
// or on another.
func IsResource(name string) bool {
	return name == string(v1alpha1.ResourceNVIDIAGPU) || strings.HasPrefix(name, v1alpha1.ResourceNVIDIAMIGPrefix)
}

// Devices returns what the plugin would report, in the order of its place in the
// machine.
func Devices(gpus []GPU) []devices.Device {
	var list []devices.Device
	for _, gpu := range gpus {
		if !gpu.Partitioned {
			list = append(list, devices.Device{ID: gpu.UUID, Resource: string(v1alpha1.ResourceNVIDIAGPU)})
		}
		for _, instance := range gpu.Instances {
			list = append(list, devices.Device{ID: instance.UUID, Resource: instance.resource()})
		}
	}
	return list
}

// MemoryMiB returns how much memory each device has, by ID.
func MemoryMiB(gpus []GPU) map[string]int64 {
	memory := map[string]int64{}
	for _, gpu := range gpus {
		if !gpu.Partitioned {
			memory[gpu.UUID] = gpu.MemoryMiB
		}
		for _, instance := range gpu.Instances {
			memory[instance.UUID] = instance.Profile.MemoryMiB
		}
	}
	return memory
}

// resource returns the extended resource that an instance is counted as.
func (i Instance) resource() string { return string(v1alpha1.ResourceMIG(i.Name)) }
