// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"sluice.dev/api/v1alpha1"
)

// Unit is what one of an extended resource is.
type Unit uint8

// The units. The first three are counted; the next three say how large each
// counted device of the same domain (nvidia.com, volcano.sh) in the same
// container is.
const (
	// UnitGPU is a GPU, or what is called one where GPUs are shared or cut.
	UnitGPU Unit = iota + 1
	// UnitReplica is a replica of a GPU.
	UnitReplica
	// UnitPercent is a hundredth of a GPU: up to 100 a part of one, beyond that only
	// whole hundreds.
	UnitPercent
	// UnitMemoryMiB is a MiB of each device's memory.
	UnitMemoryMiB
	// UnitMemoryPercent is a hundredth of each device's memory.
	UnitMemoryPercent
	// UnitComputePercent is a hundredth of each device's compute.
	UnitComputePercent
	// UnitUnread is a GPU resource of which Sluice knows only that it is one; a pod
	// that asks for it is refused, since it could not be charged.
	UnitUnread

	unitNone        // not an extended resource, or one of Sluice's own
	unitMIG         // a slice; known by its prefix
	unitDeviceClass // DRA in the guise of an extended resource
	unitOther       // an extended resource that is in no table
)

// Names says what the extended resources of GPUs are. MIG slices need no entry:
// they are known by their prefix, nvidia.com/mig-.
type Names map[corev1.ResourceName]Unit

// defaultNames are the resources of NVIDIA's device plugin and of the engines
// that Sluice works with. It is never changed.
var defaultNames = Names{
	v1alpha1.ResourceNVIDIAGPU:       UnitGPU,
	v1alpha1.ResourceNVIDIAGPUShared: UnitReplica,

	resourceHAMiMemory:        UnitMemoryMiB,
	resourceHAMiMemoryPercent: UnitMemoryPercent,
	resourceHAMiCores:         UnitComputePercent,

	resourceVolcanoGPU:           UnitGPU,
	resourceVolcanoMemory:        UnitMemoryMiB,
	resourceVolcanoMemoryPercent: UnitMemoryPercent,
	resourceVolcanoCores:         UnitComputePercent,
	resourceVolcanoOldGPU:        UnitUnread,
	resourceVolcanoOldMemory:     UnitUnread,

	resourceKoordinatorGPU:         UnitPercent,
	resourceKoordinatorShared:      UnitUnread,
	resourceKoordinatorCore:        UnitUnread,
	resourceKoordinatorMemory:      UnitUnread,
	resourceKoordinatorMemoryRatio: UnitUnread,
}

// DefaultNames is the table by which [Parse] reads: NVIDIA, HAMi, Volcano and
// Koordinator. The copy is the caller's, to add other vendors' names to:
// names["amd.com/gpu"] = UnitGPU.
func DefaultNames() Names { return maps.Clone(defaultNames) }

// own begins the names of what Sluice itself counts.
const own = v1alpha1.Group + "/"

// unit is what a resource is by this table.
func (n Names) unit(name corev1.ResourceName) Unit {
	if strings.IndexByte(string(name), '/') < 0 {
		return unitNone // cpu, memory, hugepages-2Mi
	}
	if unit, ok := n[name]; ok {
		return unit
	}
	switch text := string(name); {
	case strings.HasPrefix(text, v1alpha1.ResourceNVIDIAMIGPrefix):
		return unitMIG
	case strings.HasPrefix(text, resourcev1.ResourceDeviceClassPrefix):
		return unitDeviceClass
	case strings.HasPrefix(text, own), strings.Contains(text, corev1.ResourceDefaultNamespacePrefix):
		return unitNone
	default:
		return unitOther
	}
}

// domain is what stands before the slash.
func domain(name corev1.ResourceName) string {
	before, _, _ := strings.Cut(string(name), "/")
	return before
}
