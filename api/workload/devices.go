// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// devices is on how many GPUs a share is wanted.
func (r *reader) devices(said []amount) int64 {
	n := r.notes.devices
	if !n.set {
		return 1
	}
	count, ok := wholeNumber(n.value, mostDevices)
	switch {
	case !ok || count == 0:
		r.invalid(n.path(), n.value, "must be a number of GPUs from 1 to "+strconv.Itoa(mostDevices))
	case !r.notes.amount():
		r.invalid(n.path(), n.value, "says on how many GPUs a share lies; say the share too, by "+
			v1alpha1.AnnotationGPUFraction+", "+v1alpha1.AnnotationGPUMemory+" or "+v1alpha1.AnnotationGPU)
	case len(said) > 0 && said[0].whole > 0:
		r.invalid(n.path(), n.value, "is for shares, and "+said[0].path()+" asks for whole GPUs, "+
			strconv.Quote(said[0].value)+"; take it out, or ask for less than one GPU there")
	}
	return count
}

// holder is the container that gets the share: the one that the author named,
// else the first.
func (r *reader) holder() *corev1.Container {
	if n := r.notes.container; n.set {
		_, c := r.named(n.value)
		return c
	}
	if len(r.spec.Containers) == 0 {
		return nil // the API server refuses the pod
	}
	return &r.spec.Containers[0]
}

// named is the regular or init container of that name, nil where there is none.
func (r *reader) named(name string) (place, *corev1.Container) {
	for i := range r.spec.Containers {
		if r.spec.Containers[i].Name == name {
			return place{regularContainers, i}, &r.spec.Containers[i]
		}
	}
	for i := range r.spec.InitContainers {
		if r.spec.InitContainers[i].Name == name {
			return place{initContainers, i}, &r.spec.InitContainers[i]
		}
	}
	return place{}, nil
}
