// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"time"

	"sluice.dev/gpuagent/nvml"
)

// DriverVersion implements [nvml.Library].
func (c *Client) DriverVersion() (string, error) {
	return callServer[string](c, request{Method: "DriverVersion"})
}

// GPUs implements [nvml.Library].
func (c *Client) GPUs() ([]nvml.GPU, error) {
	found, err := callServer[[]gpuResult](c, request{Method: "GPUs"})
	if err != nil {
		return nil, err
	}
	list := make([]nvml.GPU, len(found))
	for i := range found {
		list[i] = found[i].GPU
		list[i].Err = found[i].Err.toError()
	}
	return list, nil
}

// Memory implements [nvml.Library].
func (c *Client) Memory(gpu string) (nvml.Memory, error) {
	return callServer[nvml.Memory](c, request{Method: "Memory", GPU: gpu})
}

// Utilization implements [nvml.Library].
func (c *Client) Utilization(gpu string) (int, error) {
	return callServer[int](c, request{Method: "Utilization", GPU: gpu})
}

// Processes implements [nvml.Library].
func (c *Client) Processes(gpu string) ([]nvml.Process, error) {
	return callServer[[]nvml.Process](c, request{Method: "Processes", GPU: gpu})
}

// ProcessUtilization implements [nvml.Library].
func (c *Client) ProcessUtilization(gpu string, since time.Time) ([]nvml.ProcessSample, error) {
	return callServer[[]nvml.ProcessSample](c, request{Method: "ProcessUtilization", GPU: gpu, Since: &since})
}

// InstanceUtilization implements [nvml.Library].
func (c *Client) InstanceUtilization(gpu string, instance uint32) (int, error) {
	return callServer[int](c, request{Method: "InstanceUtilization", GPU: gpu, Instance: instance})
}

// MIGMode implements [nvml.Library].
func (c *Client) MIGMode(gpu string) (current, pending nvml.Mode, err error) {
	it, err := callServer[modeResult](c, request{Method: "MIGMode", GPU: gpu})
	return it.Current, it.Pending, err
}

// SetMIGMode implements [nvml.Library].
func (c *Client) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	it, err := callServer[*driverError](c, request{Method: "SetMIGMode", GPU: gpu, Mode: mode})
	if err != nil {
		return nil, err
	}
	return it.toError(), nil
}

// Reset implements [nvml.Library].
func (c *Client) Reset(gpu string) error {
	_, err := callServer[*noResult](c, request{Method: "Reset", GPU: gpu})
	return err
}

// Profiles implements [nvml.Library].
func (c *Client) Profiles(gpu string) ([]nvml.Profile, error) {
	return callServer[[]nvml.Profile](c, request{Method: "Profiles", GPU: gpu})
}

// Placements implements [nvml.Library].
func (c *Client) Placements(gpu string, profile nvml.ProfileID) ([]nvml.Placement, error) {
	return callServer[[]nvml.Placement](c, request{Method: "Placements", GPU: gpu, Profile: profile})
}

// RemainingCapacity implements [nvml.Library].
func (c *Client) RemainingCapacity(gpu string, profile nvml.ProfileID) (int, error) {
	return callServer[int](c, request{Method: "RemainingCapacity", GPU: gpu, Profile: profile})
}

// Instances implements [nvml.Library].
func (c *Client) Instances(gpu string) ([]nvml.Instance, error) {
	return callServer[[]nvml.Instance](c, request{Method: "Instances", GPU: gpu})
}

// CreateInstance implements [nvml.Library].
func (c *Client) CreateInstance(gpu string, profile nvml.ProfileID, at nvml.Placement) (nvml.Instance, error) {
	return callServer[nvml.Instance](c, request{Method: "CreateInstance", GPU: gpu, Profile: profile, At: &at})
}

// DestroyInstance implements [nvml.Library].
func (c *Client) DestroyInstance(gpu string, instance uint32) error {
	_, err := callServer[*noResult](c, request{Method: "DestroyInstance", GPU: gpu, Instance: instance})
	return err
}

// ComputeInstances implements [nvml.Library].
func (c *Client) ComputeInstances(gpu string, instance uint32) ([]nvml.ComputeInstance, error) {
	return callServer[[]nvml.ComputeInstance](c, request{Method: "ComputeInstances", GPU: gpu, Instance: instance})
}

// CreateComputeInstance implements [nvml.Library].
func (c *Client) CreateComputeInstance(gpu string, instance uint32) (nvml.ComputeInstance, error) {
	return callServer[nvml.ComputeInstance](c, request{Method: "CreateComputeInstance", GPU: gpu, Instance: instance})
}

// DestroyComputeInstance implements [nvml.Library].
func (c *Client) DestroyComputeInstance(gpu string, instance, compute uint32) error {
	_, err := callServer[*noResult](c, request{Method: "DestroyComputeInstance", GPU: gpu, Instance: instance, Compute: compute})
	return err
}
