// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// note is one annotation; set tells an empty one from none.
type note struct {
	key, value string
	set        bool
}

// path is the annotation's field.
func (n note) path() string { return "metadata.annotations[" + n.key + "]" }

// notes are the annotations that say something of what a pod asks for.
type notes struct {
	gpu, fraction, memory                      note // how much
	devices, container                         note // of how many GPUs, for whom
	memoryLimit, memoryLimitKAI, fractionLimit note // up to what
	nodePools, maxRuntime                      note
	kaiContainers                              []note
}

// notesOf picks them out in one pass, which costs less than a look-up for each.
func notesOf(annotations map[string]string) notes {
	var n notes
	for key, value := range annotations {
		here := note{key, value, true}
		switch key {
		case v1alpha1.AnnotationGPU:
			n.gpu = here
		case v1alpha1.AnnotationGPUFraction:
			n.fraction = here
		case v1alpha1.AnnotationGPUMemory:
			n.memory = here
		case v1alpha1.AnnotationGPUFractionDevices:
			n.devices = here
		case v1alpha1.AnnotationGPUFractionContainer:
			n.container = here
		case v1alpha1.AnnotationGPUMemoryLimit:
			n.memoryLimit = here
		case v1alpha1.AnnotationGPUMemoryLimitKAI:
			n.memoryLimitKAI = here
		case v1alpha1.AnnotationGPUFractionLimitKAI:
			n.fractionLimit = here
		case v1alpha1.AnnotationNodePools:
			n.nodePools = here
		case v1alpha1.AnnotationMaxRuntime:
			n.maxRuntime = here
		default:
			if strings.HasPrefix(key, annotationKAIContainerPrefix) {
				n.kaiContainers = append(n.kaiContainers, here)
			}
		}
	}
	slices.SortFunc(n.kaiContainers, func(a, b note) int { return strings.Compare(a.key, b.key) })
	return n
}
