// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"errors"
	"fmt"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// GPU is a GPU as the device plugin reads it.
type GPU struct {
	nvml.GPU
	// Partitioned reports whether the GPU is in MIG mode; otherwise the GPU itself is a
	// device.
	Partitioned bool
	// Instances lists the instances that are devices, by their first memory slice.
	Instances []Instance
	// Replicas is the number of replicas that the plugin offers of the whole GPU; 0 and 1 mean that it
	// does not share the GPU.
	Replicas int
}

// devices returns the identifiers of the devices that the whole GPU is: itself, or its replicas.
func (g GPU) devices() []string {
	switch {
	case g.Partitioned:
		return nil
	case g.Replicas <= 1:
		return []string{g.UUID}
	}
	var ids []string
	for i := range g.Replicas {
		ids = append(ids, fmt.Sprintf("%s::%d", g.UUID, i))
	}
	return ids
}

// DriverDevice returns the UUID by which the driver knows a device of the plugin.
func DriverDevice(id string) string {
	uuid, _, _ := strings.Cut(id, "::")
	return uuid
}

// Instance is a GPU instance with a compute instance.
type Instance struct {
	// Name is the name of its profile: "1g.5gb".
	Name v1alpha1.MIGProfile
	// UUID identifies the MIG device: "MIG-...".
	UUID string
	// Profile is the driver's description of the profile.
	Profile nvml.Profile
}

// ReadGPUs returns the node's GPUs by index. It omits GPUs that the driver cannot reach,
// and instances without a compute instance, which cannot be assigned. replicas is the number of
// replicas of each whole GPU.
func ReadGPUs(driver nvml.Library, replicas int) ([]GPU, error) {
	found, err := driver.GPUs()
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	var list []GPU
	for _, item := range found {
		gpu, err := readGPU(driver, item)
		switch {
		case errors.Is(err, nvml.ErrGPULost):
		case err != nil:
			return nil, fmt.Errorf("read GPU %s: %w", item.UUID, err)
		default:
			gpu.Replicas = replicas
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
	for _, item := range instances {
		computes, err := driver.ComputeInstances(found.UUID, item.ID)
		if errors.Is(err, nvml.ErrNotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return gpu, err
		}
		for _, compute := range computes {
			instance := profiles[item.Profile]
			instance.UUID = compute.UUID
			gpu.Instances = append(gpu.Instances, instance)
		}
	}
	return gpu, nil
}

// profilesOf returns the profiles of a GPU by the driver's IDs.
func profilesOf(driver nvml.Library, gpu nvml.GPU) (map[nvml.ProfileID]Instance, error) {
	model, known := mig.ModelByPCIDevice(gpu.PCIDevice)
	if !known {
		return nil, fmt.Errorf("unknown GPU model %#08x is in MIG mode", gpu.PCIDevice)
	}
	list, err := driver.Profiles(gpu.UUID)
	if err != nil {
		return nil, err
	}
	profiles := map[nvml.ProfileID]Instance{}
	for _, profile := range list {
		shape := mig.Shape{Compute: profile.Compute, Memory: profile.Memory, Attribute: profile.Attribute}
		for i := range model.Profiles {
			if model.Profiles[i].Shape == shape {
				profiles[profile.ID] = Instance{Name: model.Profiles[i].Name, Profile: profile}
			}
		}
	}
	return profiles, nil
}

// IsResource reports whether the plugin counts devices under this name, on any node.
func IsResource(name string) bool {
	return name == string(v1alpha1.ResourceNVIDIAGPU) || strings.HasPrefix(name, v1alpha1.ResourceNVIDIAMIGPrefix)
}

// OfGPUs returns the devices that the plugin reports, in the order of their GPUs.
func OfGPUs(gpus []GPU) []Device {
	var list []Device
	for _, gpu := range gpus {
		for _, id := range gpu.devices() {
			list = append(list, Device{ID: id, Resource: string(v1alpha1.ResourceNVIDIAGPU)})
		}
		for _, instance := range gpu.Instances {
			list = append(list, Device{ID: instance.UUID, Resource: instance.resource()})
		}
	}
	return list
}

// MemoryMiB returns the memory of each device, by ID; of a replica its share.
func MemoryMiB(gpus []GPU) map[string]int64 {
	memory := map[string]int64{}
	for _, gpu := range gpus {
		for _, id := range gpu.devices() {
			memory[id] = gpu.MemoryMiB / int64(max(1, gpu.Replicas))
		}
		for _, instance := range gpu.Instances {
			memory[instance.UUID] = instance.Profile.MemoryMiB
		}
	}
	return memory
}

// resource returns the extended resource that counts the instance.
func (i Instance) resource() string { return string(v1alpha1.ResourceMIG(i.Name)) }
