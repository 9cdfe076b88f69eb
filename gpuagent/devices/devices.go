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

// device is a GPU or MIG device that a container can be given.
type device struct {
	uuid string
	// shape is a MIG device's profile; nil for a whole GPU.
	shape *mig.Shape
	// model is nil for a whole GPU and for an unknown model.
	model *mig.Model
	// replaced reports that the GPU is in MIG mode by now, so that only an outdated kubelet offers
	// it as a whole.
	replaced bool
}

// listDevices returns the devices that a GPU offers: itself, or its MIG devices. In MIG mode it
// also returns the GPU itself, which the kubelet offers until the device plugin enumerates again.
func listDevices(library nvml.Library, gpu string) ([]device, error) {
	described, err := findGPU(library, gpu)
	if err != nil {
		return nil, err
	}
	whole := []device{{uuid: gpu}}
	current, _, err := library.MIGMode(gpu)
	if errors.Is(err, nvml.ErrNotSupported) {
		return whole, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read MIG mode of %s: %w", gpu, err)
	}
	if current == nvml.Disabled {
		return whole, nil
	}
	profiles, err := library.Profiles(gpu)
	if err != nil {
		return nil, fmt.Errorf("list profiles of %s: %w", gpu, err)
	}
	instances, err := library.Instances(gpu)
	if err != nil {
		return nil, fmt.Errorf("list instances of %s: %w", gpu, err)
	}
	model := described.Model(profiles)
	list := []device{{uuid: gpu, model: model, replaced: true}}
	for _, instance := range instances {
		computes, err := library.ComputeInstances(gpu, instance.ID)
		if err != nil {
			return nil, fmt.Errorf("list compute instances of %s: %w", gpu, err)
		}
		for _, compute := range computes {
			list = append(list, device{uuid: compute.UUID, shape: shapeOf(profiles, instance.Profile), model: model})
		}
	}
	return list, nil
}

// observedDevices is listDevices for a GPU as it was last observed.
func observedDevices(gpu *v1alpha1.ObservedGPU) []device {
	uuid := string(gpu.UUID)
	model := mig.ObservedModel(gpu)
	if gpu.MIG.Current != v1alpha1.MIGModeEnabled {
		return []device{{uuid: uuid, model: model}}
	}
	list := []device{{uuid: uuid, model: model, replaced: true}}
	for i := range gpu.Instances {
		it := &gpu.Instances[i]
		d := device{uuid: it.UUID, model: model, shape: &mig.Shape{}}
		if model != nil {
			if profile, err := model.Profile(it.Profile); err == nil {
				d.shape = &profile.Shape
			}
		}
		list = append(list, d)
	}
	return list
}

func findGPU(library nvml.Library, gpu string) (*nvml.GPU, error) {
	gpus, err := library.GPUs()
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	for i := range gpus {
		if gpus[i].UUID == gpu {
			return &gpus[i], gpus[i].Err
		}
	}
	return nil, fmt.Errorf("GPU %s: %w", gpu, nvml.ErrNotFound)
}

// shapeOf returns the shape of a profile, or one that no profile has.
func shapeOf(profiles []nvml.Profile, id nvml.ProfileID) *mig.Shape {
	for _, p := range profiles {
		if p.ID == id {
			return &mig.Shape{Compute: p.Compute, Memory: p.Memory, Attribute: p.Attribute}
		}
	}
	return &mig.Shape{}
}

// canSatisfy reports whether a pod that requests the resource may be given the device, as far as
// the device's kind decides it. An unknown device may, unless it is offered under another resource.
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
	// A time-shared device is offered under another name.
	requested, err := d.model.Profile(v1alpha1.MIGProfile(strings.TrimSuffix(string(profile), "+shared")))
	if err != nil {
		return !offered
	}
	return requested.Shape == *d.shape
}
