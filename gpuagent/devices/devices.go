// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// device is what a container can be given.
type device struct {
	uuid string
	// shape is a MIG device's profile; nil for a whole GPU.
	shape *mig.Shape
	// model is the kind of the GPU; nil where it is not known.
	model *mig.Model
	// replaced tells that the GPU is cut by now: only the kubelet can still offer it.
	replaced bool
}

// listDevices are what a GPU offers: itself, or its MIG devices, and then also itself
// until the device plugin has looked again.
func listDevices(library nvml.Library, gpu string) ([]device, error) {
	board, err := modelOf(library, gpu)
	if err != nil {
		return nil, err
	}
	whole := []device{{uuid: gpu, model: board}}
	current, _, err := library.MIGMode(gpu)
	if errors.Is(err, nvml.ErrNotSupported) {
		return whole, nil
	}
	if err != nil {
		return nil, fmt.Errorf("MIG mode of %s: %w", gpu, err)
	}
	if current == nvml.Disabled {
		return whole, nil
	}
	profiles, err := library.Profiles(gpu)
	if err != nil {
		return nil, fmt.Errorf("profiles of %s: %w", gpu, err)
	}
	instances, err := library.Instances(gpu)
	if err != nil {
		return nil, fmt.Errorf("instances of %s: %w", gpu, err)
	}
	list := []device{{uuid: gpu, model: board, replaced: true}}
	for _, instance := range instances {
		computes, err := library.ComputeInstances(gpu, instance.ID)
		if err != nil {
			return nil, fmt.Errorf("compute instances of %s: %w", gpu, err)
		}
		for _, compute := range computes {
			list = append(list, device{uuid: compute.UUID, shape: shapeOf(profiles, instance.Profile), model: board})
		}
	}
	return list, nil
}

// observedDevices is devicesOf for a GPU as it was last seen.
func observedDevices(gpu *v1alpha1.ObservedGPU) []device {
	uuid := string(gpu.UUID)
	var id uint32
	_, _ = fmt.Sscanf(gpu.DeviceID, "0x%x", &id) // else a board that is not known
	board, _ := mig.ModelByPCIDevice(id)
	if gpu.MIG.Current != v1alpha1.MIGModeEnabled {
		return []device{{uuid: uuid, model: board}}
	}
	list := []device{{uuid: uuid, model: board, replaced: true}}
	for i := range gpu.Instances {
		it := &gpu.Instances[i]
		d := device{uuid: it.UUID, model: board, shape: &mig.Shape{}}
		if board != nil {
			if profile, err := board.Profile(it.Profile); err == nil {
				d.shape = &profile.Shape
			}
		}
		list = append(list, d)
	}
	return list
}

func modelOf(library nvml.Library, gpu string) (*mig.Model, error) {
	gpus, err := library.GPUs()
	if err != nil {
		return nil, fmt.Errorf("listing the GPUs: %w", err)
	}
	for _, each := range gpus {
		if each.UUID == gpu {
			board, _ := mig.ModelByPCIDevice(each.PCIDevice)
			return board, each.Err
		}
	}
	return nil, fmt.Errorf("GPU %s: %w", gpu, nvml.ErrNotFound)
}

// shapeOf is one that no profile has where the driver does not tell.
func shapeOf(profiles []nvml.Profile, id nvml.ProfileID) *mig.Shape {
	for _, p := range profiles {
		if p.ID == id {
			return &mig.Shape{Compute: p.Compute, Memory: p.Memory, Attribute: p.Attribute}
		}
	}
	return &mig.Shape{}
}

// canSatisfy tells whether a pod that asks for the resource may be given the device, as far
// as its kind can tell. What is not known may, unless it is offered as something else.
func (d device) canSatisfy(resource corev1.ResourceName, offered bool) bool {
	profile, slice := v1alpha1.MIGProfileOf(resource)
	if d.replaced {
		return false
	}
	if !slice {
		return d.shape == nil && isGPU(resource)
	}
	if d.shape == nil {
		return false
	}
	if d.model == nil || *d.shape == (mig.Shape{}) {
		return true
	}
	// A slice that is shared in time is offered under a name of its own.
	wanted, err := d.model.Profile(v1alpha1.MIGProfile(strings.TrimSuffix(string(profile), "+shared")))
	if err != nil {
		return !offered
	}
	return wanted.Shape == *d.shape
}
