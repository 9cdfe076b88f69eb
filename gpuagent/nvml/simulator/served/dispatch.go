// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"fmt"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// dispatch calls the method that is asked for.
func dispatch(library nvml.Library, r *request) (any, error) {
	switch r.Method {
	case "Init":
		return nil, library.Init()
	case "Shutdown":
		return nil, library.Shutdown()
	case "DriverVersion":
		return library.DriverVersion()
	case "GPUs":
		return gpus(library)
	case "Memory":
		return library.Memory(r.GPU)
	case "Utilisation":
		return library.Utilisation(r.GPU)
	case "Processes":
		return library.Processes(r.GPU)
	case "ProcessUtilisation":
		return library.ProcessUtilisation(r.GPU, r.since())
	case "MIGMode":
		current, pending, err := library.MIGMode(r.GPU)
		return modes{current, pending}, err
	case "SetMIGMode":
		activation, err := library.SetMIGMode(r.GPU, r.Mode)
		return refused(activation), err
	case "Reset":
		return nil, library.Reset(r.GPU)
	case "Profiles":
		return library.Profiles(r.GPU)
	case "Placements":
		return library.Placements(r.GPU, r.Profile)
	case "RemainingCapacity":
		return library.RemainingCapacity(r.GPU, r.Profile)
	case "Instances":
		return library.Instances(r.GPU)
	case "CreateInstance":
		return library.CreateInstance(r.GPU, r.Profile, r.at())
	case "DestroyInstance":
		return nil, library.DestroyInstance(r.GPU, r.Instance)
	case "ComputeInstances":
		return library.ComputeInstances(r.GPU, r.Instance)
	case "CreateComputeInstance":
		return library.CreateComputeInstance(r.GPU, r.Instance)
	case "DestroyComputeInstance":
		return nil, library.DestroyComputeInstance(r.GPU, r.Instance, r.Compute)
	default:
		return nil, fmt.Errorf("no method %q: %w", r.Method, nvml.ErrInvalidArgument)
	}
}

func gpus(library nvml.Library) ([]gpu, error) {
	found, err := library.GPUs()
	list := make([]gpu, len(found))
	for i, it := range found {
		list[i] = gpu{GPU: it, Err: refused(it.Err)}
		list[i].GPU.Err = nil
	}
	return list, err
}

func (r *request) since() time.Time {
	if r.Since == nil {
		return time.Time{}
	}
	return *r.Since
}

func (r *request) at() nvml.Placement {
	if r.At == nil {
		return nvml.Placement{}
	}
	return *r.At
}
