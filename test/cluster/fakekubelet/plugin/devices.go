// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/cluster/fakekubelet/devices"
)

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
		if !gpu.Cut {
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
		if !gpu.Cut {
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
