// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// size is what a container says of each of its devices; all zero for nothing.
// Unlike what is counted, it is not added up: it holds for every device.
type size struct{ memoryMiB, memoryPercent, computePercent int64 }

// mostMemoryMiB is the most memory of one GPU that can be asked for: 16 TiB, far
// beyond any board, so that what is larger was written in another unit.
const mostMemoryMiB = 16 << 20

func (u Unit) isSize() bool { return u >= UnitMemoryMiB && u <= UnitComputePercent }

// most is the largest amount of a resource of this unit in one container.
func (u Unit) most() int64 {
	switch u {
	case UnitMemoryMiB:
		return mostMemoryMiB
	case UnitMemoryPercent, UnitComputePercent:
		return 100
	case UnitPercent:
		return 100 * mostDevices
	default:
		return mostDevices
	}
}

// allowed says which amounts of a resource of this unit there are.
func (u Unit) allowed() string {
	from := "0"
	if u.isSize() {
		from = "1"
	}
	return "must be a whole number from " + from + " to " + strconv.FormatInt(u.most(), 10)
}

// sized puts together what a container says of the size of its devices, and
// compares it with the containers before it: one pod has one share.
func (r *reader) sized(c *container) {
	for _, s := range c.sizes {
		if !slices.ContainsFunc(c.devices, s.isOf) {
			r.invalid(c.resource(limits, s.name), strconv.FormatInt(s.amount, 10),
				"says how large each GPU is; the same container must say how many, as "+string(r.names.counted(s.name)))
		}
	}
	for _, device := range c.devices {
		var own size
		for _, s := range c.sizes {
			if s.isOf(device) {
				own.set(s)
			}
		}
		if own.memoryMiB > 0 && own.memoryPercent > 0 {
			r.invalid(c.resource(limits, device.name), strconv.FormatInt(device.amount, 10),
				"has its memory both in MiB and in percent; keep one of the two")
			own.memoryPercent = 0
		}
		e := r.counted.of(device.name, device.unit)
		switch {
		case e.first == c.place:
			e.size = own
		case e.size != own:
			r.invalid(c.resource(limits, device.name), strconv.FormatInt(device.amount, 10),
				"is for "+own.String()+", in "+e.first.String()+" for "+e.size.String()+
					"; all containers of a pod ask for the same, or go into pods of their own")
		}
	}
}

// isOf reports whether s says how large device is.
func (s sizing) isOf(device sizing) bool {
	return device.unit == UnitGPU && domain(device.name) == domain(s.name)
}

func (z *size) set(s sizing) {
	switch s.unit {
	case UnitMemoryMiB:
		z.memoryMiB = max(z.memoryMiB, s.amount)
	case UnitMemoryPercent:
		z.memoryPercent = max(z.memoryPercent, s.amount)
	case UnitComputePercent:
		z.computePercent = max(z.computePercent, s.amount)
	}
}

// String is for messages: "8000 MiB of each GPU".
func (z size) String() string {
	text := "whole GPUs"
	switch {
	case z.memoryMiB > 0:
		text = strconv.FormatInt(z.memoryMiB, 10) + " MiB of each GPU"
	case z.memoryPercent > 0:
		text = strconv.FormatInt(z.memoryPercent, 10) + " % of each GPU's memory"
	}
	if z.computePercent > 0 {
		text += " with " + strconv.FormatInt(z.computePercent, 10) + " % of its compute"
	}
	return text
}

// counted is the resource that counts the devices of which size says how large
// they are; of several the first by name.
func (n Names) counted(size corev1.ResourceName) corev1.ResourceName {
	found := corev1.ResourceName("")
	for name, unit := range n {
		if unit == UnitGPU && domain(name) == domain(size) && (found == "" || strings.Compare(string(name), string(found)) < 0) {
			found = name
		}
	}
	if found == "" {
		return v1alpha1.ResourceNVIDIAGPU
	}
	return found
}
