// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"sluice.dev/api/v1alpha1"
)

// Unit is the meaning of one unit of an extended resource. A resource that a NodePool names as its GPU has
// the unit unitNamed + its thousandths of a GPU.
type Unit uint16

// The units. The first three are counted. The next three are the size of each counted device
// of the same domain (nvidia.com, volcano.sh) in the same container.
const (
	// UnitGPU is a GPU, or what the device plugin calls one if GPUs are shared or
	// partitioned.
	UnitGPU Unit = iota + 1
	// UnitReplica is a replica of a GPU.
	UnitReplica
	// UnitPercent is a hundredth of a GPU: up to 100 a share of one GPU, above only whole
	// hundreds.
	UnitPercent
	// UnitMemoryMiB is a MiB of each device's memory.
	UnitMemoryMiB
	// UnitMemoryPercent is a hundredth of each device's memory.
	UnitMemoryPercent
	// UnitComputePercent is a hundredth of each device's compute.
	UnitComputePercent
	// UnitUnsupported is a known GPU resource that Sluice cannot charge. Pods that request it
	// are rejected.
	UnitUnsupported

	unitNone        // not an extended resource, or one of Sluice's own
	unitMIG         // a MIG instance, recognized by its prefix
	unitDeviceClass // a DRA device class as an extended resource
	unitOther       // an extended resource that no list knows

	unitNamed Unit = 1 << 8
)

// ResourceUnits maps extended GPU resources to their units. MIG resources need no entry: their
// prefix is nvidia.com/mig-. A name with an asterisk at its end stands for all others with that prefix.
// A nil map stands for the [DefaultResourceUnits].
type ResourceUnits map[corev1.ResourceName]Unit

// defaultResourceUnits are the resources of NVIDIA's device plugin and of the supported
// schedulers. It is never changed.
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

// DefaultResourceUnits returns a copy of the units with which [Parse] reads: NVIDIA, HAMi,
// Volcano and Koordinator. Callers may add other vendors: units["amd.com/gpu"] = UnitGPU.
func DefaultResourceUnits() ResourceUnits { return maps.Clone(defaultResourceUnits) }

// ListedResources are the extended resources that the objects of a cluster list, beside those that
// Sluice knows.
type ListedResources struct {
	// GPUs are those that NodePools name as their GPUs, with the GPUs of one: the most, where NodePools
	// differ.
	GPUs map[corev1.ResourceName]Milli `json:"gpus,omitempty"`
	// Others are those that the AdmissionParameters list as no GPUs.
	Others []v1alpha1.ResourcePattern `json:"others,omitempty"`
}

// NewListedResources returns the listed resources of a cluster with these NodePools and, of its
// AdmissionParameters, nonGPUResources.
func NewListedResources(pools []v1alpha1.NodePool, others []v1alpha1.ResourcePattern) ListedResources {
	listed := ListedResources{GPUs: make(map[corev1.ResourceName]Milli), Others: others}
	for i := range pools {
		for _, named := range pools[i].Spec.Resources {
			name := corev1.ResourceName(named.Name)
			listed.GPUs[name] = max(listed.GPUs[name], Milli(named.GPUs.MilliValue()))
		}
	}
	return listed
}

// Units returns the default units with those of the listed resources.
func (l ListedResources) Units() ResourceUnits {
	units := DefaultResourceUnits()
	for _, name := range l.Others {
		units[corev1.ResourceName(name)] = unitNone
	}
	for name, each := range l.GPUs {
		units[name] = unitNamed + Unit(each)
	}
	maps.Copy(units, defaultResourceUnits) // no list changes what Sluice knows
	return units
}

// IsUnlisted reports whether no list knows the resource: it is an extended resource, and neither known as
// a GPU nor as anything else.
func (n ResourceUnits) IsUnlisted(name corev1.ResourceName) bool { return n.unitOf(name) == unitOther }

// Requested returns the first of the unlisted resources that the pod requests; empty if it requests none, or
// has ended.
func (n ResourceUnits) Requested(pod *corev1.Pod, unlisted []string) string {
	request, err := n.ParsePod(pod)
	if err != nil || IsPodTerminal(pod) {
		return ""
	}
	if at := slices.IndexFunc(unlisted, func(name string) bool { return slices.Contains(request.OtherResources, name) }); at >= 0 {
		return unlisted[at]
	}
	return ""
}

// sluicePrefix is the prefix of Sluice's own resources.
const sluicePrefix = v1alpha1.Group + "/"

// unitOf returns the unit of a resource.
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
		for pattern, unit := range n {
			if prefix, ok := strings.CutSuffix(string(pattern), "*"); ok && strings.HasPrefix(text, prefix) {
				return unit
			}
		}
		return unitOther
	}
}

// resourceDomain returns the part of the name before the slash.
func resourceDomain(name corev1.ResourceName) string {
	before, _, _ := strings.Cut(string(name), "/")
	return before
}

// Resources of HAMi for the size of each device of nvidia.com/gpu.
const (
	resourceHAMiMemory        corev1.ResourceName = "nvidia.com/gpumem"            // MiB
	resourceHAMiMemoryPercent corev1.ResourceName = "nvidia.com/gpumem-percentage" // 1 to 100
	resourceHAMiCores         corev1.ResourceName = "nvidia.com/gpucores"          // percent of the compute
)

// Resources of Volcano's device plugin. The first is counted, the next three are the size of each
// device. The last two belong to an earlier plugin.
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

// Annotations in which later versions of KAI-Scheduler store each container's memory: nvidia.com/container.<name>.gpu-memory.request.
const (
	annotationKAIContainerPrefix  = "nvidia.com/container."
	annotationKAIContainerRequest = ".gpu-memory.request"
	annotationKAIContainerLimit   = ".gpu-memory.limit"
)

// maxProfileLength is the largest length of a profile's name.
const maxProfileLength = 24

// validateMIGResource returns the problem of a resource with the MIG prefix, or "".
func validateMIGResource(name corev1.ResourceName) string {
	profile, _ := v1alpha1.MIGProfileOf(name)
	text := string(profile)
	if problem := validateNotComputeInstance(text); problem != "" {
		return problem
	}
	if slice, shared := strings.CutSuffix(text, "+shared"); shared {
		return "is a replica of a MIG instance, which is not offered; request the instance, " +
			string(v1alpha1.ResourceMIG(v1alpha1.MIGProfile(slice)))
	}
	if !isMIGProfile(text) || v1alpha1.ResourceMIG(profile) != name { // a resource name cannot contain a plus
		return "is not a MIG profile; one looks like nvidia.com/mig-3g.40gb, nvidia.com/mig-1g.10gb.me or nvidia.com/mig-1g.24gb-me"
	}
	return ""
}

// validateNotComputeInstance returns an error for a compute instance within a GPU instance
// (1c.3g.20gb), and "" for any other text.
func validateNotComputeInstance(text string) string {
	count, instance, ok := strings.Cut(text, "c.")
	if !ok || count == "" || !isMIGProfile(instance) {
		return ""
	}
	if _, ok := parseWholeNumber(count, maxDevices); !ok {
		return ""
	}
	return text + " is a compute instance inside the GPU instance " + instance +
		"; compute instances are not offered, request " + string(v1alpha1.ResourceMIG(v1alpha1.MIGProfile(instance)))
}

// isMIGProfile reports whether text has the form of a GPU instance profile, as in the schema of
// [v1alpha1.MIGProfile]: 3g.40gb, 1g.10gb+me, 1g.24gb+me.all, 1g.24gb-me.
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
