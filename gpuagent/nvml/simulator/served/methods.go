// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"time"

	"sluice.dev/gpuagent/nvml"
)

// nothing is the answer of calls that have none.
type nothing struct{}

// DriverVersion implements [nvml.Library].
func (c *Client) DriverVersion() (string, error) {
	return ask[string](c, request{Method: "DriverVersion"})
}

// GPUs implements [nvml.Library].
func (c *Client) GPUs() ([]nvml.GPU, error) {
	found, err := ask[[]gpu](c, request{Method: "GPUs"})
	if err != nil {
		return nil, err
	}
	list := make([]nvml.GPU, len(found))
	for i := range found {
		list[i] = found[i].GPU
		list[i].Err = found[i].Err.err()
	}
	return list, nil
}

// Memory implements [nvml.Library].
func (c *Client) Memory(gpu string) (nvml.Memory, error) {
	return ask[nvml.Memory](c, request{Method: "Memory", GPU: gpu})
}

// Utilisation implements [nvml.Library].
func (c *Client) Utilisation(gpu string) (int, error) {
	return ask[int](c, request{Method: "Utilisation", GPU: gpu})
}

// Processes implements [nvml.Library].
func (c *Client) Processes(gpu string) ([]nvml.Process, error) {
	return ask[[]nvml.Process](c, request{Method: "Processes", GPU: gpu})
}

// ProcessUtilisation implements [nvml.Library].
func (c *Client) ProcessUtilisation(gpu string, since time.Time) ([]nvml.ProcessSample, error) {
	return ask[[]nvml.ProcessSample](c, request{Method: "ProcessUtilisation", GPU: gpu, Since: &since})
}

// MIGMode implements [nvml.Library].
func (c *Client) MIGMode(gpu string) (current, pending nvml.Mode, err error) {
	it, err := ask[modes](c, request{Method: "MIGMode", GPU: gpu})
	return it.Current, it.Pending, err
}

// SetMIGMode implements [nvml.Library].
func (c *Client) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	it, err := ask[*refusal](c, request{Method: "SetMIGMode", GPU: gpu, Mode: mode})
	if err != nil {
		return nil, err
	}
	return it.err(), nil
}

// Reset implements [nvml.Library].
func (c *Client) Reset(gpu string) error {
	_, err := ask[*nothing](c, request{Method: "Reset", GPU: gpu})
	return err
}

// Profiles implements [nvml.Library].
func (c *Client) Profiles(gpu string) ([]nvml.Profile, error) {
	return ask[[]nvml.Profile](c, request{Method: "Profiles", GPU: gpu})
}

// Placements implements [nvml.Library].
func (c *Client) Placements(gpu string, profile nvml.ProfileID) ([]nvml.Placement, error) {
	return ask[[]nvml.Placement](c, request{Method: "Placements", GPU: gpu, Profile: profile})
}

// RemainingCapacity implements [nvml.Library].
func (c *Client) RemainingCapacity(gpu string, profile nvml.ProfileID) (int, error) {
	return ask[int](c, request{Method: "RemainingCapacity", GPU: gpu, Profile: profile})
}

// Instances implements [nvml.Library].
func (c *Client) Instances(gpu string) ([]nvml.Instance, error) {
	return ask[[]nvml.Instance](c, request{Method: "Instances", GPU: gpu})
}

// CreateInstance implements [nvml.Library].
func (c *Client) CreateInstance(gpu string, profile nvml.ProfileID, at nvml.Placement) (nvml.Instance, error) {
	return ask[nvml.Instance](c, request{Method: "CreateInstance", GPU: gpu, Profile: profile, At: &at})
}

// DestroyInstance implements [nvml.Library].
func (c *Client) DestroyInstance(gpu string, instance uint32) error {
	_, err := ask[*nothing](c, request{Method: "DestroyInstance", GPU: gpu, Instance: instance})
	return err
}

// ComputeInstances implements [nvml.Library].
func (c *Client) ComputeInstances(gpu string, instance uint32) ([]nvml.ComputeInstance, error) {
	return ask[[]nvml.ComputeInstance](c, request{Method: "ComputeInstances", GPU: gpu, Instance: instance})
}

// CreateComputeInstance implements [nvml.Library].
func (c *Client) CreateComputeInstance(gpu string, instance uint32) (nvml.ComputeInstance, error) {
	return ask[nvml.ComputeInstance](c, request{Method: "CreateComputeInstance", GPU: gpu, Instance: instance})
}

// DestroyComputeInstance implements [nvml.Library].
func (c *Client) DestroyComputeInstance(gpu string, instance, compute uint32) error {
	_, err := ask[*nothing](c, request{Method: "DestroyComputeInstance", GPU: gpu, Instance: instance, Compute: compute})
	return err
}
