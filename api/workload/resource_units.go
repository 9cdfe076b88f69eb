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
	// UnitUnsupported is a GPU resource of which Sluice knows only that it is one; a pod
	// that asks for it is refused, since it could not be charged.
	UnitUnsupported

	unitNone        // not an extended resource, or one of Sluice's own
	unitMIG         // a slice; known by its prefix
	unitDeviceClass // DRA in the guise of an extended resource
	unitOther       // an extended resource that is in no table
)

// ResourceUnits says what the extended resources of GPUs are. MIG slices need no entry:
// they are known by their prefix, nvidia.com/mig-.
type ResourceUnits map[corev1.ResourceName]Unit

// defaultResourceUnits are the resources of NVIDIA's device plugin and of the engines
// that Sluice works with. It is never changed.
var defaultResourceUnits = ResourceUnits{
	v1alpha1.ResourceNVIDIAGPU:       UnitGPU,
	v1alpha1.ResourceNVIDIAGPUShared: UnitReplica,

	resourceHAMiMemory:        UnitMemoryMiB,
	resourceHAMiMemoryPercent: UnitMemoryPercent,
	resourceHAMiCores:         UnitComputePercent,

	resourceVolcanoGPU:           UnitGPU,
	resourceVolcanoMemory:        UnitMemoryMiB,
	resourceVolcanoMemoryPercent: UnitMemoryPercent,
	resourceVolcanoCores:         UnitComputePercent,
	resourceVolcanoOldGPU:        UnitUnsupported,
	resourceVolcanoOldMemory:     UnitUnsupported,

	resourceKoordinatorGPU:         UnitPercent,
	resourceKoordinatorShared:      UnitUnsupported,
	resourceKoordinatorCore:        UnitUnsupported,
	resourceKoordinatorMemory:      UnitUnsupported,
	resourceKoordinatorMemoryRatio: UnitUnsupported,
}

// DefaultResourceUnits is the table by which [Parse] reads: NVIDIA, HAMi, Volcano and
// Koordinator. The copy is the caller's, to add other vendors' names to:
// names["amd.com/gpu"] = UnitGPU.
func DefaultResourceUnits() ResourceUnits { return maps.Clone(defaultResourceUnits) }

// sluicePrefix begins the names of what Sluice itself counts.
const sluicePrefix = v1alpha1.Group + "/"

// unitOf is what a resource is by this table.
func (n ResourceUnits) unitOf(name corev1.ResourceName) Unit {
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
	case strings.HasPrefix(text, sluicePrefix), strings.Contains(text, corev1.ResourceDefaultNamespacePrefix):
		return unitNone
	default:
		return unitOther
	}
}

// resourceDomain is what stands before the slash.
func resourceDomain(name corev1.ResourceName) string {
	before, _, _ := strings.Cut(string(name), "/")
	return before
}

// Resources by which HAMi's users say how large each device of nvidia.com/gpu is.
const (
	resourceHAMiMemory        corev1.ResourceName = "nvidia.com/gpumem"            // MiB
	resourceHAMiMemoryPercent corev1.ResourceName = "nvidia.com/gpumem-percentage" // 1 to 100
	resourceHAMiCores         corev1.ResourceName = "nvidia.com/gpucores"          // percent of the compute
)

// Resources of Volcano's device plugin; the first is counted, the others say how
// large each is. The last two are of a plugin that came before it.
const (
	resourceVolcanoGPU           corev1.ResourceName = "volcano.sh/vgpu-number"
	resourceVolcanoMemory        corev1.ResourceName = "volcano.sh/vgpu-memory" // MiB
	resourceVolcanoMemoryPercent corev1.ResourceName = "volcano.sh/vgpu-memory-percentage"
	resourceVolcanoCores         corev1.ResourceName = "volcano.sh/vgpu-cores"
	resourceVolcanoOldGPU        corev1.ResourceName = "volcano.sh/gpu-number"
	resourceVolcanoOldMemory     corev1.ResourceName = "volcano.sh/gpu-memory"
)

// Resources of Koordinator. The first is hundredths of a GPU; the others divide
// one request over several names.
const (
	resourceKoordinatorGPU         corev1.ResourceName = "koordinator.sh/gpu"
	resourceKoordinatorShared      corev1.ResourceName = "koordinator.sh/gpu.shared"
	resourceKoordinatorCore        corev1.ResourceName = "koordinator.sh/gpu-core"
	resourceKoordinatorMemory      corev1.ResourceName = "koordinator.sh/gpu-memory"
	resourceKoordinatorMemoryRatio corev1.ResourceName = "koordinator.sh/gpu-memory-ratio"
)

// Annotations in which later versions of KAI-Scheduler keep each container's
// memory: nvidia.com/container.<name>.gpu-memory.request.
const (
	annotationKAIContainerPrefix  = "nvidia.com/container."
	annotationKAIContainerRequest = ".gpu-memory.request"
	annotationKAIContainerLimit   = ".gpu-memory.limit"
)

// maxProfileLength is how long the name of a profile may be.
const maxProfileLength = 24

// validateMIGResource says what is wrong with a resource that is named like a MIG slice;
// empty for one that could be a profile of some board.
func validateMIGResource(name corev1.ResourceName) string {
	profile, _ := v1alpha1.MIGProfileOf(name)
	text := string(profile)
	if refusal := validateNotComputeInstance(text); refusal != "" {
		return refusal
	}
	if slice, shared := strings.CutSuffix(text, "+shared"); shared {
		return "is a replica of a MIG slice, which is not offered; ask for the slice, " + string(v1alpha1.ResourceMIG(v1alpha1.MIGProfile(slice)))
	}
	if !isMIGProfile(text) || v1alpha1.ResourceMIG(profile) != name { // a plus is no part of a resource's name
		return "is not a MIG profile; one looks like nvidia.com/mig-3g.40gb, nvidia.com/mig-1g.10gb.me or nvidia.com/mig-1g.24gb-me"
	}
	return ""
}

// validateNotComputeInstance is the refusal of a compute instance inside a GPU instance
// (1c.3g.20gb), empty for any other text.
func validateNotComputeInstance(text string) string {
	count, instance, ok := strings.Cut(text, "c.")
	if !ok || count == "" || !isMIGProfile(instance) {
		return ""
	}
	if _, ok := parseWholeNumber(count, maxDevices); !ok {
		return ""
	}
	return text + " is a compute instance inside the GPU instance " + instance +
		"; compute instances are not offered, ask for " + string(v1alpha1.ResourceMIG(v1alpha1.MIGProfile(instance)))
}

// isMIGProfile reports whether text has the form of a GPU instance profile, that of
// the schema of [v1alpha1.MIGProfile]: 3g.40gb, 1g.10gb+me, 1g.24gb+me.all,
// 1g.24gb-me.
func isMIGProfile(text string) bool {
	if len(text) > maxProfileLength || len(text) < 2 || text[0] < '1' || text[0] > '8' || text[1] != 'g' {
		return false
	}
	memory, ok := strings.CutPrefix(text[2:], ".")
	if !ok {
		return false
	}
	digits := 0
	for digits < len(memory) && isDigit(memory[digits]) {
		digits++
	}
	attribute, ok := strings.CutPrefix(memory[digits:], "gb")
	if !ok || digits < 1 || digits > 4 {
		return false
	}
	if attribute == "" || attribute == "-me" {
		return true
	}
	attribute, ok = strings.CutPrefix(attribute, "+")
	first, second, two := strings.Cut(attribute, ".")
	return ok && isLowerLetters(first) && (!two || isLowerLetters(second))
}

func isLowerLetters(text string) bool {
	for at := range len(text) {
		if text[at] < 'a' || text[at] > 'z' {
			return false
		}
	}
	return text != ""
}
