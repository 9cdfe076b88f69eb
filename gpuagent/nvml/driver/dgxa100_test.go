// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"sync/atomic"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"sluice.dev/gpuagent/nvml/conformance"
)

var minted atomic.Int64

// dgx is go-nvml's own mock of eight GPUs, completed by what it has the data for and no
// function: instances by their identifiers, and the MIG device of a compute instance.
func dgx() *dgxa100.Server {
	server := dgxa100.New()
	for _, it := range server.Devices {
		d := it.(*dgxa100.Device)
		create := d.CreateGpuInstanceWithPlacementFunc
		d.CreateGpuInstanceWithPlacementFunc = func(info *gonvml.GpuInstanceProfileInfo, at *gonvml.GpuInstancePlacement) (gonvml.GpuInstance, gonvml.Return) {
			made, ret := create(info, at)
			complete(made.(*dgxa100.GpuInstance))
			return made, ret
		}
		d.GetGpuInstanceByIdFunc = func(id int) (gonvml.GpuInstance, gonvml.Return) {
			d.RLock()
			defer d.RUnlock()
			for gi := range d.GpuInstances {
				if gi.Info.Id == uint32(id) {
					return gi, gonvml.SUCCESS
				}
			}
			return nil, gonvml.ERROR_NOT_FOUND
		}
	}
	return server
}

func complete(gi *dgxa100.GpuInstance) {
	create := gi.CreateComputeInstanceFunc
	gi.CreateComputeInstanceFunc = func(info *gonvml.ComputeInstanceProfileInfo) (gonvml.ComputeInstance, gonvml.Return) {
		made, ret := create(info)
		uuid := fmt.Sprintf("MIG-%08d-0000-0000-0000-000000000000", minted.Add(1))
		made.(*dgxa100.ComputeInstance).Info.Device = &mock.Device{
			GetUUIDFunc: func() (string, gonvml.Return) { return uuid, gonvml.SUCCESS },
		}
		return made, ret
	}
	gi.GetComputeInstanceByIdFunc = func(id int) (gonvml.ComputeInstance, gonvml.Return) {
		gi.RLock()
		defer gi.RUnlock()
		for ci := range gi.ComputeInstances {
			if ci.Info.Id == uint32(id) {
				return ci, gonvml.SUCCESS
			}
		}
		return nil, gonvml.ERROR_NOT_FOUND
	}
}

// TestConformance holds the driver to the suite over go-nvml's mock, as far as that goes.
func TestConformance(t *testing.T) {
	tally := conformance.Run(t, conformance.Target{
		Name: "dgxa100",
		New: func(*testing.T) conformance.Node {
			return conformance.Node{Library: newLibrary(dgx(), Config{})}
		},
		Lacks: map[conformance.Feature]string{
			conformance.Refusals:    "the mock makes instances wherever it is asked to, over others too",
			conformance.Guards:      "the mock destroys instances with all that is in them",
			conformance.ModeGuards:  "the mock makes instances in any mode, and leaves them when the mode goes",
			conformance.Identifiers: "the mock has the profiles' indices for their identifiers",
			conformance.Capacity:    "the mock has no remaining capacity",
			conformance.Processes:   "the mock has no processes",
			conformance.Utilisation: "the mock has no utilisation",
			conformance.Reset:       "the mock cannot be reset",
		},
	})
	if tally.Broken > 0 || tally.Kept < 25 {
		t.Errorf("%+v; want none broken and at least 25 kept", tally)
	}
}
