// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

// memoryLimit is a limit of each device's memory, in MiB or as a share of the GPU.
type memoryLimit struct {
	path, value string
	memoryMiB   int64
	share       Milli
}

// parseMemoryLimits reads the limit up to which the pod may burst its GPU memory.
func (r *parser) parseMemoryLimits(request *Request) {
	shared := request.Form == FormShare || request.Form == FormMemory
	var buffer [4]memoryLimit
	found := r.parseLimitAnnotations(buffer[:0])
	form := request.Form
	if !shared {
		if form = r.requestedForm(request); form == FormNone {
			r.rejectLimitsWithoutShare(request, found)
			return
		}
	}
	found = r.parseLimitVariable(request, form, found)
	if len(found) == 0 {
		return
	}
	first := found[0]
	for _, second := range found[1:] {
		r.rejectDuplicate(second.path, second.value, first.path, first.value, second.memoryMiB == first.memoryMiB && second.share == first.share)
	}
	switch {
	case !shared: // the granted resource does not have the requested size
	case first.memoryMiB > 0 && first.memoryMiB < request.MemoryMiB:
		r.addInvalid(first.path, first.value, "must not be below the "+strconv.FormatInt(request.MemoryMiB, 10)+" MiB that are requested")
	case first.share > 0 && first.share < request.Share:
		r.addInvalid(first.path, first.value, "must not be below the "+request.Share.String()+" of a GPU that is requested")
	}
	request.MemoryLimitMiB, request.ShareLimit = first.memoryMiB, first.share
}

// requestedForm returns the form in which the author of an admitted pod requested a share that
// Sluice granted as a resource, a MIG instance or a replica. The limits of such a pod still count; whole GPUs have none.
func (r *parser) requestedForm(request *Request) Form {
	switch n := &r.annotations; {
	case !r.admitted || !request.RequestsGPU():
		return FormNone
	case n.gpu.isSet:
		if amount, problem := parseGPUAmount(n.gpu); problem == "" && amount.wholeGPUs > 0 {
			return FormNone
		}
		return FormShare
	case n.fraction.isSet:
		return FormShare
	case n.memory.isSet:
		return FormMemory
	}
	return FormNone
}

// rejectLimitsWithoutShare rejects limits of a pod that requests no share: whole GPUs and MIG
// instances cannot burst. In an admitted pod they have no effect. If the share itself is invalid,
// the limits cause no second error.
func (r *parser) rejectLimitsWithoutShare(request *Request, found []memoryLimit) {
	if (r.admitted && request.RequestsGPU()) || (r.annotations.hasAmount() && !request.RequestsGPU()) {
		return
	}
	for _, l := range found {
		r.addInvalid(l.path, l.value, "limits the memory of a share of a GPU; request one with "+
			v1alpha1.AnnotationGPUFraction+", "+v1alpha1.AnnotationGPUMemory+" or "+v1alpha1.AnnotationGPU+", or remove the limit")
	}
}

// parseLimitAnnotations reads the three annotations, sluice.dev/gpu-memory-limit first.
func (r *parser) parseLimitAnnotations(found []memoryLimit) []memoryLimit {
	if n := r.annotations.memoryLimit; n.isSet {
		if memory, ok := parseWholeNumber(n.value, maxMemoryMiB); ok && memory > 0 {
			found = append(found, memoryLimit{path: n.path(), value: n.value, memoryMiB: memory})
		} else {
			r.addInvalid(n.path(), n.value,
				"must be MiB of one GPU's memory, a whole number from 1 to "+strconv.Itoa(maxMemoryMiB)+", such as 16384")
		}
	}
	if n := r.annotations.memoryLimitKAI; n.isSet {
		if memory, ok := parseMebibytesOrNumber(n.value); ok {
			found = append(found, memoryLimit{path: n.path(), value: n.value, memoryMiB: memory})
		} else {
			r.addInvalid(n.path(), n.value, "must be MiB of one GPU's memory such as 16384, or a quantity with its unit such as 16Gi, at most 16Ti")
		}
	}
	if n := r.annotations.fractionLimit; n.isSet {
		if share, problem := parseShare(n.value, oneGPU); problem == "" {
			found = append(found, memoryLimit{path: n.path(), value: n.value, share: share})
		} else {
			r.addInvalid(n.path(), n.value, problem)
		}
	}
	return found
}

// parseLimitVariable reads RUNAI_GPU_MEMORY_LIMIT in the container with the share: a part of the
// GPU for a fraction, a quantity of bytes for memory. If the variable is set twice, the last
// value applies. It ignores other containers: the variable has no effect there, and many users
// set it in all containers.
func (r *parser) parseLimitVariable(request *Request, form Form, found []memoryLimit) []memoryLimit {
	at, c := r.containerByName(request.Container)
	if c == nil {
		return found
	}
	last := -1
	for i := range c.Env {
		if c.Env[i].Name == v1alpha1.EnvRunAIGPUMemoryLimit {
			last = i
		}
	}
	if last < 0 {
		return found
	}
	variable := &c.Env[last]
	l := memoryLimit{path: at.String() + ".env[" + strconv.Itoa(last) + "].value", value: variable.Value}
	if problem := l.parseVariable(form, variable); problem != "" {
		r.addInvalid(l.path, l.value, v1alpha1.EnvRunAIGPUMemoryLimit+" "+problem)
		return found
	}
	return append(found, l)
}

func (l *memoryLimit) parseVariable(form Form, variable *corev1.EnvVar) (problem string) {
	if variable.ValueFrom != nil {
		return "must be a literal value, not valueFrom"
	}
	if form == FormShare {
		l.share, problem = parseShare(l.value, oneGPU)
		return problem
	}
	var ok bool
	if l.memoryMiB, ok = parseMebibytes(l.value); !ok {
		return "must be, of memory, a quantity of bytes from 1Mi to 16Ti, such as 16Gi"
	}
	return ""
}

// parseMebibytesOrNumber reads a plain number as MiB, and other text like [parseMebibytes].
func parseMebibytesOrNumber(text string) (int64, bool) {
	if memory, ok := parseWholeNumber(text, maxMemoryMiB); ok {
		return memory, memory > 0
	}
	return parseMebibytes(text)
}

// parseMebibytes reads a quantity of bytes as MiB, rounded down. It returns false for an invalid
// quantity, less than one MiB, or more than the maximum.
func parseMebibytes(text string) (int64, bool) {
	if len(text) > maxValueBytes {
		return 0, false
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, false
	}
	memory := quantity.Value() >> 20
	return memory, memory > 0 && memory <= maxMemoryMiB
}

// validateKAIContainers validates the annotations for single containers. Later versions of
// KAI-Scheduler derive them from gpu-memory and prefer them to all other annotations. KAI's
// webhook runs after Sluice's, so an admitted pod may have them if they match the charged amount.
// Annotations of users are rejected, because Sluice would not charge them.
func (r *parser) validateKAIContainers() {
	for _, n := range r.annotations.kaiContainers {
		switch {
		case strings.HasSuffix(n.key, annotationKAIContainerRequest):
			r.validateKAITranslation(n, v1alpha1.AnnotationGPUMemory, r.annotations.memory)
		case strings.HasSuffix(n.key, annotationKAIContainerLimit):
			r.validateKAITranslation(n, v1alpha1.AnnotationGPUMemoryLimitKAI, r.annotations.memoryLimitKAI)
		}
	}
}

func (r *parser) validateKAITranslation(n annotation, key string, original annotation) {
	want, _ := parseMebibytesOrNumber(original.value)
	memory, ok := parseMebibytes(n.value)
	same := n.value == original.value || (ok && memory == want)
	switch {
	case !original.isSet:
		r.addInvalid(n.path(), n.value, "is written by KAI-Scheduler; set "+key+" instead")
	case !r.admitted:
		r.addInvalid(n.path(), n.value, "is written by KAI-Scheduler; remove it, "+original.path()+" is enough")
	case !same:
		r.addInvalid(n.path(), n.value, "must be equal to "+original.path()+", "+strconv.Quote(truncateValue(original.value)))
	}
}
