// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import corev1 "k8s.io/api/core/v1"

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
