// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations and variables of Run:ai and KAI-Scheduler on pods. Sluice reads them with
// the same meaning.
const (
	// AnnotationGPUFraction is a share of one GPU, more than 0 and less than 1: "0.5".
	AnnotationGPUFraction = "gpu-fraction"
	// AnnotationGPUMemory is GPU memory in MiB: "8192".
	AnnotationGPUMemory = "gpu-memory"
	// AnnotationGPUMemoryLimitKAI has the meaning of AnnotationGPUMemoryLimit.
	AnnotationGPUMemoryLimitKAI = "gpu-memory.limit"
	// AnnotationGPUFractionLimitKAI is the share up to which a fraction may burst.
	AnnotationGPUFractionLimitKAI = "gpu-fraction.limit"
	// AnnotationGPUFractionDevices is the number of GPUs on which the fraction is requested.
	AnnotationGPUFractionDevices = "gpu-fraction-num-devices"
	// AnnotationGPUFractionContainer names the container that gets the fraction.
	AnnotationGPUFractionContainer = "gpu-fraction-container-name"
	// EnvRunAIGPUMemoryLimit is the environment variable with which users of Run:ai set a
	// memory limit: a share of the GPU, "0.95", or a quantity.
	EnvRunAIGPUMemoryLimit = "RUNAI_GPU_MEMORY_LIMIT"
)

// Names of NVIDIA's device plugin, and labels of GPU feature discovery.
const (
	// ResourceNVIDIAGPU counts whole GPUs, or replicas of shared GPUs.
	ResourceNVIDIAGPU corev1.ResourceName = "nvidia.com/gpu"
	// ResourceNVIDIAGPUShared counts replicas if the device plugin renames them.
	ResourceNVIDIAGPUShared corev1.ResourceName = "nvidia.com/gpu.shared"
	// ResourceNVIDIAMIGPrefix is the prefix of MIG resources: nvidia.com/mig-3g.40gb.
	ResourceNVIDIAMIGPrefix = "nvidia.com/mig-"
	// LabelMIGPrefix is the prefix of labels that count a node's MIG instances:
	// nvidia.com/mig-3g.40gb.count.
	LabelMIGPrefix = "nvidia.com/mig-"

	// LabelGPUProduct is the GPU's product name. It changes when a GPU is shared or
	// partitioned.
	LabelGPUProduct = "nvidia.com/gpu.product"
	// LabelGPUCount is the number of GPUs of the node. It changes when GPUs are partitioned.
	LabelGPUCount = "nvidia.com/gpu.count"
	// LabelGPUReplicas is the number of pods that share one GPU.
	LabelGPUReplicas = "nvidia.com/gpu.replicas"
	// LabelGPUMemory is the memory of a GPU in MiB. It changes when GPUs are partitioned.
	LabelGPUMemory = "nvidia.com/gpu.memory"
	// LabelGPUSharingStrategy is none, mps or time-slicing.
	LabelGPUSharingStrategy = "nvidia.com/gpu.sharing-strategy"
	// LabelMIGCapable is "true" on a node whose GPUs support MIG.
	LabelMIGCapable = "nvidia.com/mig.capable"
	// LabelMIGStrategy is none, single or mixed.
	LabelMIGStrategy = "nvidia.com/mig.strategy"
	// LabelDeployMIGManager is "true" if NVIDIA's MIG manager partitions the node's GPUs.
	// Sluice does not change the GPUs of such a node.
	LabelDeployMIGManager = "nvidia.com/gpu.deploy.mig-manager"
)

// GPUClientPaused is the value of a node's label in [GPUClientLabels] while Sluice pauses the client.
// It replaces the value "true" only, so that it names the former value, too.
const GPUClientPaused = "paused-by-sluice"

// ResumedGPUClient returns the value that a label in [GPUClientLabels] gets when Sluice resumes its client, and
// whether Sluice pauses it. A driver upgrade appends a value of its own
// (paused-by-sluice_paused-for-driver-upgrade), which stays.
func ResumedGPUClient(value string) (resumed string, ours bool) {
	rest, found := strings.CutPrefix(value, GPUClientPaused)
	switch {
	case !found || rest != "" && rest[0] != '_':
		return value, false
	case rest == "":
		return "true", true
	}
	return rest[1:], true
}

// GPUClientLabels returns the labels by which the GPU operator's DaemonSets select their nodes, of those
// that keep GPUs open and that NVIDIA's MIG manager pauses. It pauses nvidia.com/gpu.deploy.client as
// well, which Sluice's own agent has.
func GPUClientLabels() []string {
	return []string{
		"nvidia.com/gpu.deploy.device-plugin", "nvidia.com/gpu.deploy.gpu-feature-discovery",
		"nvidia.com/gpu.deploy.dcgm-exporter", "nvidia.com/gpu.deploy.dcgm", "nvidia.com/gpu.deploy.nvsm",
	}
}

// ResourceMIG returns the resource that counts instances of a profile. A resource name cannot
// contain the plus sign of 1g.10gb+me, so the device plugin replaces it by a dot.
func ResourceMIG(profile MIGProfile) corev1.ResourceName {
	return corev1.ResourceName(ResourceNVIDIAMIGPrefix + strings.ReplaceAll(string(profile), "+", "."))
}

// MIGProfileOf returns the profile whose instances a resource counts. It returns false for other
// resources.
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
