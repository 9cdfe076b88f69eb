// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// kaiContainers looks at the annotations into which later versions of
// KAI-Scheduler translate gpu-memory, container by container, and which it then
// prefers to every other. Its webhook comes after ours, so they may be on a pod
// that was admitted, if they say no more than what the pod was charged for. An
// author's own are refused: nobody would have counted them.
func (r *reader) kaiContainers() {
	for _, n := range r.notes.kaiContainers {
		switch {
		case strings.HasSuffix(n.key, annotationKAIContainerRequest):
			r.kaiTranslation(n, v1alpha1.AnnotationGPUMemory, r.notes.memory)
		case strings.HasSuffix(n.key, annotationKAIContainerLimit):
			r.kaiTranslation(n, v1alpha1.AnnotationGPUMemoryLimitKAI, r.notes.memoryLimitKAI)
		}
	}
}

func (r *reader) kaiTranslation(n note, key string, original note) {
	want, _ := mebibytesOrPlain(original.value)
	memory, ok := mebibytes(n.value)
	same := n.value == original.value || (ok && memory == want)
	switch {
	case !original.set:
		r.invalid(n.path(), n.value, "is for KAI-Scheduler to write; say it by "+key+" instead")
	case !r.admitted:
		r.invalid(n.path(), n.value, "is for KAI-Scheduler to write; take it out, "+original.path()+" says it")
	case !same:
		r.invalid(n.path(), n.value, "must say what "+original.path()+" says, "+strconv.Quote(shown(original.value)))
	}
}
