// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import "strconv"

// amount is what one annotation says: whole GPUs, or a share or some memory of
// each GPU.
type amount struct {
	note
	whole     int64
	share     Milli
	memoryMiB int64
}

// fromAnnotations fills in what the pod's annotations ask for. They stand for the
// whole pod, so nothing is added up.
func (r *reader) fromAnnotations(request *Request) {
	granted := request.AsksForGPU()
	if granted && r.admitted {
		return
	}
	said := r.said()
	if granted {
		r.contradict()
		return
	}
	devices := r.devices(said)
	if len(said) == 0 {
		return
	}
	first := said[0]
	for _, second := range said[1:] {
		same := second.whole == first.whole && second.share == first.share && second.memoryMiB == first.memoryMiB
		r.repeated(second.path(), second.value, first.path(), first.value, same)
	}
	request.Devices = devices
	switch {
	case first.whole > 0:
		request.Form, request.Share, request.Devices = FormWhole, one, first.whole
	case first.share > 0:
		request.Form, request.Share = FormShare, first.share
	default:
		request.Form, request.MemoryMiB = FormMemory, first.memoryMiB
	}
	request.countGPUs()
	if c := r.holder(); c != nil {
		request.Container = c.Name
	} else if n := r.notes.container; n.set {
		r.invalid(n.path(), n.value, "must be the name of one of the pod's containers or init containers")
	}
}

// repeated refuses a second annotation for what first says already. In a pod that
// was admitted an engine's word may stand beside its author's, if they agree.
func (r *reader) repeated(path, value, first, firstValue string, same bool) {
	says := "says the same again as "
	switch {
	case !same:
		says = "says otherwise than "
	case r.admitted:
		return
	}
	r.invalid(path, value, says+first+", "+strconv.Quote(shown(firstValue))+"; keep one of the two")
}

// contradict refuses annotations for shares beside GPUs in a container's limits.
func (r *reader) contradict() {
	resource := &r.counted.entries[0]
	for _, n := range [...]note{r.notes.gpu, r.notes.fraction, r.notes.memory, r.notes.devices} {
		if n.set {
			r.invalid(n.path(), n.value, "cannot go with "+resource.path()+", "+strconv.Quote(strconv.FormatInt(resource.total(), 10))+
				"; a pod asks for GPUs by a resource or by an annotation, keep one of the two")
		}
	}
}
