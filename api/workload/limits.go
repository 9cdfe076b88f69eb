// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

// limit is how far one key lets each device's memory go: so many MiB, or a part
// of the GPU.
type limit struct {
	path, value string
	memoryMiB   int64
	share       Milli
}

// memoryLimits fills in how far the memory may go above what is asked for.
func (r *reader) memoryLimits(request *Request) {
	shared := request.Form == FormShare || request.Form == FormMemory
	var found [4]limit
	said := r.annotatedLimits(found[:0])
	if !shared {
		r.withoutShare(request, said)
		return
	}
	said = r.environmentLimit(request, said)
	if len(said) == 0 {
		return
	}
	first := said[0]
	for _, second := range said[1:] {
		r.repeated(second.path, second.value, first.path, first.value, second.memoryMiB == first.memoryMiB && second.share == first.share)
	}
	switch {
	case first.memoryMiB > 0 && first.memoryMiB < request.MemoryMiB:
		r.invalid(first.path, first.value, "must not be below the "+strconv.FormatInt(request.MemoryMiB, 10)+" MiB that are asked for")
	case first.share > 0 && first.share < request.Share:
		r.invalid(first.path, first.value, "must not be below the "+request.Share.String()+" of a GPU that is asked for")
	}
	request.MemoryLimitMiB, request.ShareLimit = first.memoryMiB, first.share
}

// withoutShare refuses limits of what has none: a whole GPU or a slice cannot
// burst. In a pod that was admitted they are what its author had said before it
// was granted one; where the share itself is malformed, that is fault enough.
func (r *reader) withoutShare(request *Request, said []limit) {
	if (r.admitted && request.AsksForGPU()) || (r.notes.amount() && !request.AsksForGPU()) {
		return
	}
	for _, l := range said {
		r.invalid(l.path, l.value, "limits the memory of a share of a GPU; ask for one, by "+
			v1alpha1.AnnotationGPUFraction+", "+v1alpha1.AnnotationGPUMemory+" or "+v1alpha1.AnnotationGPU+", or take the limit out")
	}
}

// annotatedLimits reads the three annotations, ours first.
func (r *reader) annotatedLimits(said []limit) []limit {
	if n := r.notes.memoryLimit; n.set {
		if memory, ok := wholeNumber(n.value, mostMemoryMiB); ok && memory > 0 {
			said = append(said, limit{path: n.path(), value: n.value, memoryMiB: memory})
		} else {
			r.invalid(n.path(), n.value, "must be MiB of one GPU's memory, a whole number from 1 to "+strconv.Itoa(mostMemoryMiB)+", such as 16384")
		}
	}
	if n := r.notes.memoryLimitKAI; n.set {
		if memory, ok := mebibytesOrPlain(n.value); ok {
			said = append(said, limit{path: n.path(), value: n.value, memoryMiB: memory})
		} else {
			r.invalid(n.path(), n.value, "must be MiB of one GPU's memory such as 16384, or a quantity with its unit such as 16Gi, at most 16Ti")
		}
	}
	if n := r.notes.fractionLimit; n.set {
		if share, wrong := part(n.value, one); wrong == "" {
			said = append(said, limit{path: n.path(), value: n.value, share: share})
		} else {
			r.invalid(n.path(), n.value, wrong)
		}
	}
	return said
}

// environmentLimit reads the variable by which Run:ai's users say it, in the
// container that has the share: of a fraction a part of the GPU, of memory a
// quantity of bytes. Of two variables of one name a container gets the last.
// Elsewhere it means nothing, and many set it everywhere.
func (r *reader) environmentLimit(request *Request, said []limit) []limit {
	at, c := r.named(request.Container)
	if c == nil {
		return said
	}
	last := -1
	for i := range c.Env {
		if c.Env[i].Name == v1alpha1.EnvRunAIGPUMemoryLimit {
			last = i
		}
	}
	if last < 0 {
		return said
	}
	variable := &c.Env[last]
	l := limit{path: at.String() + ".env[" + strconv.Itoa(last) + "].value", value: variable.Value}
	if wrong := l.fromEnvironment(request.Form, variable); wrong != "" {
		r.invalid(l.path, l.value, v1alpha1.EnvRunAIGPUMemoryLimit+" "+wrong)
		return said
	}
	return append(said, l)
}

func (l *limit) fromEnvironment(form Form, variable *corev1.EnvVar) (wrong string) {
	if variable.ValueFrom != nil {
		return "must be written out, not taken from elsewhere by valueFrom"
	}
	if form == FormShare {
		l.share, wrong = part(l.value, one)
		return wrong
	}
	var ok bool
	if l.memoryMiB, ok = mebibytes(l.value); !ok {
		return "must be, of memory, a quantity of bytes from 1Mi to 16Ti, such as 16Gi"
	}
	return ""
}

// mebibytesOrPlain reads a plain number as MiB, all else as [mebibytes] does.
func mebibytesOrPlain(text string) (int64, bool) {
	if memory, ok := wholeNumber(text, mostMemoryMiB); ok {
		return memory, memory > 0
	}
	return mebibytes(text)
}

// mebibytes reads a quantity of bytes as whole MiB, the rest cut off; false for
// what is no quantity, less than one MiB or too much.
func mebibytes(text string) (int64, bool) {
	if len(text) > mostShown {
		return 0, false
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, false
	}
	memory := quantity.Value() >> 20
	return memory, memory > 0 && memory <= mostMemoryMiB
}
