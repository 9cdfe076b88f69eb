// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// What users of Run:ai and KAI-Scheduler write on their pods, read by Sluice with
// the same meaning.
const (
	// AnnotationGPUFraction is a part of one GPU, more than 0 and less than 1: "0.5".
	AnnotationGPUFraction = "gpu-fraction"
	// AnnotationGPUMemory is GPU memory in MiB: "8192".
	AnnotationGPUMemory = "gpu-memory"
	// AnnotationGPUMemoryLimitKAI is the same as AnnotationGPUMemoryLimit.
	AnnotationGPUMemoryLimitKAI = "gpu-memory.limit"
	// AnnotationGPUFractionLimitKAI is the part up to which a fraction may go.
	AnnotationGPUFractionLimitKAI = "gpu-fraction.limit"
	// AnnotationGPUFractionDevices is on how many GPUs the fraction is wanted.
	AnnotationGPUFractionDevices = "gpu-fraction-num-devices"
	// AnnotationGPUFractionContainer names the container that gets the fraction.
	AnnotationGPUFractionContainer = "gpu-fraction-container-name"
	// EnvRunAIGPUMemoryLimit is the environment variable by which Run:ai's users set
	// a memory limit: a part of the GPU, "0.95", or a quantity.
	EnvRunAIGPUMemoryLimit = "RUNAI_GPU_MEMORY_LIMIT"
)

// Names of NVIDIA's device plugin, and labels of GPU feature discovery.
const (
	// ResourceNVIDIAGPU is whole GPUs, or replicas of shared ones.
	ResourceNVIDIAGPU corev1.ResourceName = "nvidia.com/gpu"
	// ResourceNVIDIAGPUShared is replicas where the plugin renames them.
	ResourceNVIDIAGPUShared corev1.ResourceName = "nvidia.com/gpu.shared"
	// ResourceNVIDIAMIGPrefix begins the names of MIG slices: nvidia.com/mig-3g.40gb.
	ResourceNVIDIAMIGPrefix = "nvidia.com/mig-"
	// LabelMIGPrefix begins the labels that count a node's MIG slices:
	// nvidia.com/mig-3g.40gb.count.
	LabelMIGPrefix = "nvidia.com/mig-"

	// LabelGPUProduct is the GPU's name. It changes when a GPU is shared or cut.
	LabelGPUProduct = "nvidia.com/gpu.product"
	// LabelGPUCount is how many GPUs the node has. It changes when GPUs are cut.
	LabelGPUCount = "nvidia.com/gpu.count"
	// LabelGPUReplicas is how many pods share one GPU.
	LabelGPUReplicas = "nvidia.com/gpu.replicas"
	// LabelGPUMemory is a GPU's memory in MiB. It changes when GPUs are cut.
	LabelGPUMemory = "nvidia.com/gpu.memory"
	// LabelGPUSharingStrategy is none, mps or time-slicing.
	LabelGPUSharingStrategy = "nvidia.com/gpu.sharing-strategy"
	// LabelMIGCapable is "true" on a node whose GPUs can be cut.
	LabelMIGCapable = "nvidia.com/mig.capable"
	// LabelMIGStrategy is none, single or mixed.
	LabelMIGStrategy = "nvidia.com/mig.strategy"
	// LabelDeployMIGManager is "true" where NVIDIA's own MIG manager cuts the GPUs;
	// Sluice leaves such a node alone.
	LabelDeployMIGManager = "nvidia.com/gpu.deploy.mig-manager"
)

// ResourceMIG is the resource that stands for slices of a profile. A resource name
// has no room for the plus of 1g.10gb+me; the device plugin writes a dot.
func ResourceMIG(profile MIGProfile) corev1.ResourceName {
	return corev1.ResourceName(ResourceNVIDIAMIGPrefix + strings.ReplaceAll(string(profile), "+", "."))
}

// MIGProfileOf is the profile whose slices a resource stands for, and false
// where it stands for something else.
func MIGProfileOf(name corev1.ResourceName) (MIGProfile, bool) {
	profile, ok := strings.CutPrefix(string(name), ResourceNVIDIAMIGPrefix)
	if !ok {
		return "", false
	}
	slice, attribute, ok := strings.Cut(profile, "gb.")
	if ok {
		profile = slice + "gb+" + attribute
	}
	return MIGProfile(profile), true
}
