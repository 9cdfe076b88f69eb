// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// annotation is one annotation of the pod. isSet distinguishes an empty value from a missing
// annotation.
type annotation struct {
	key, value string
	isSet      bool
}

// path returns the annotation's field.
func (n annotation) path() string { return "metadata.annotations[" + n.key + "]" }

// requestAnnotations are the annotations that belong to a GPU request.
type requestAnnotations struct {
	gpu, fraction, memory                      annotation // the amount
	devices, container                         annotation // the number of GPUs, and the container
	memoryLimit, memoryLimitKAI, fractionLimit annotation // the limits
	nodePools, maxRuntime                      annotation
	kaiContainers                              []annotation
}

// collectAnnotations collects them in one pass, which is faster than one lookup each.
func collectAnnotations(annotations map[string]string) requestAnnotations {
	var n requestAnnotations
	for key, value := range annotations {
		found := annotation{key, value, true}
		switch key {
		case v1alpha1.AnnotationGPU:
			n.gpu = found
		case v1alpha1.AnnotationGPUFraction:
			n.fraction = found
		case v1alpha1.AnnotationGPUMemory:
			n.memory = found
		case v1alpha1.AnnotationGPUFractionDevices:
			n.devices = found
		case v1alpha1.AnnotationGPUFractionContainer:
			n.container = found
		case v1alpha1.AnnotationGPUMemoryLimit:
			n.memoryLimit = found
		case v1alpha1.AnnotationGPUMemoryLimitKAI:
			n.memoryLimitKAI = found
		case v1alpha1.AnnotationGPUFractionLimitKAI:
			n.fractionLimit = found
		case v1alpha1.AnnotationNodePools:
			n.nodePools = found
		case v1alpha1.AnnotationMaxRuntime:
			n.maxRuntime = found
		default:
			if strings.HasPrefix(key, annotationKAIContainerPrefix) {
				n.kaiContainers = append(n.kaiContainers, found)
			}
		}
	}
	slices.SortFunc(n.kaiContainers, func(a, b annotation) int { return strings.Compare(a.key, b.key) })
	return n
}

// IsRequestAnnotation reports whether a request depends on the annotation. Programs that keep pods in memory
// can drop the others.
func IsRequestAnnotation(key string) bool {
	switch key {
	case v1alpha1.AnnotationGPU, v1alpha1.AnnotationGPUFraction, v1alpha1.AnnotationGPUMemory, v1alpha1.AnnotationGPUFractionDevices,
		v1alpha1.AnnotationGPUFractionContainer, v1alpha1.AnnotationGPUMemoryLimit, v1alpha1.AnnotationGPUMemoryLimitKAI,
		v1alpha1.AnnotationGPUFractionLimitKAI, v1alpha1.AnnotationNodePools, v1alpha1.AnnotationMaxRuntime:
		return true
	}
	return strings.HasPrefix(key, annotationKAIContainerPrefix)
}

// parseAmounts reads the annotations with an amount, sluice.dev/gpu first.
func (r *parser) parseAmounts() []annotatedAmount {
	if !r.annotations.hasAmount() {
		return nil
	}
	amounts := make([]annotatedAmount, 0, 3)
	if n := r.annotations.gpu; n.isSet {
		if a, problem := parseGPUAmount(n); problem == "" {
			amounts = append(amounts, a)
		} else {
			r.addInvalid(n.path(), n.value, problem)
		}
	}
	if n := r.annotations.fraction; n.isSet {
		if share, problem := parseShare(n.value, oneGPU-1); problem == "" {
			amounts = append(amounts, annotatedAmount{annotation: n, share: share})
		} else {
			r.addInvalid(n.path(), n.value, problem+"; whole GPUs are requested as "+string(v1alpha1.ResourceNVIDIAGPU)+" in a container's limits")
		}
	}
	if n := r.annotations.memory; n.isSet {
		if memory, ok := parseWholeNumber(n.value, maxMemoryMiB); ok && memory > 0 {
			amounts = append(amounts, annotatedAmount{annotation: n, memoryMiB: memory})
		} else {
			r.addInvalid(n.path(), n.value, "must be MiB of one GPU's memory, a whole number from 1 to "+strconv.Itoa(maxMemoryMiB)+", such as 8192")
		}
	}
	return amounts
}

// parseShare reads a share of one GPU, up to most. More than three decimals are rejected, because
// rounding would charge another amount than requested.
func parseShare(text string, most Milli) (share Milli, problem string) {
	share, exact, ok := parseDecimal(text)
	switch {
	case ok && exact && share > 0 && share <= most:
		return share, ""
	case ok && !exact && share < most:
		return 0, "has more than three decimals; write for example " + (share + 1).String()
	}
	return 0, "must be a decimal from " + Milli(1).String() + " to " + most.String() + " with at most three decimals, such as 0.5"
}

// hasAmount reports whether any annotation has an amount.
func (n *requestAnnotations) hasAmount() bool {
	return n.gpu.isSet || n.fraction.isSet || n.memory.isSet
}

// parseGPUAmount reads the annotation sluice.dev/gpu, a quantity in steps of one thousandth. A
// share is on one GPU, so amounts above one must be whole GPUs.
func parseGPUAmount(n annotation) (a annotatedAmount, problem string) {
	value, exact, ok := parseDecimal(n.value)
	if thousandths, isMilli := strings.CutSuffix(n.value, "m"); isMilli {
		var count int64
		count, ok = parseWholeNumber(thousandths, maxDevices*int64(oneGPU))
		value, exact = Milli(count), true
	}
	switch {
	case !ok || !exact || value == 0 || value > Milli(maxDevices)*oneGPU:
		return a, describeInvalidAmount(n.value)
	case value < oneGPU:
		return annotatedAmount{annotation: n, share: value}, ""
	case value%oneGPU == 0:
		return annotatedAmount{annotation: n, wholeGPUs: int64(value / oneGPU)}, ""
	}
	devices := int64(value/oneGPU) + 1
	each := (int64(value) + devices - 1) / devices
	return a, fmt.Sprintf("must be less than one GPU or whole GPUs, because a share is on one GPU; request %d, or %dm with %s: %q",
		devices, each, v1alpha1.AnnotationGPUFractionDevices, strconv.FormatInt(devices, 10))
}

// describeInvalidAmount returns the error for an invalid amount. A MIG profile is the most
// frequent mistake.
func describeInvalidAmount(text string) string {
	if refusal := validateNotComputeInstance(text); refusal != "" {
		return refusal
	}
	if isMIGProfile(text) {
		return "is a MIG profile, which is requested in a container's limits: " + string(v1alpha1.ResourceMIG(v1alpha1.MIGProfile(text)))
	}
	return "must be a part of one GPU in thousandths such as 500m or 0.5, or whole GPUs such as 2"
}

// annotatedAmount is the amount in one annotation: whole GPUs, or a share or memory of each GPU.
type annotatedAmount struct {
	annotation
	wholeGPUs int64
	share     Milli
	memoryMiB int64
}

// applyAnnotations sets the request from the pod's annotations. They apply to the whole pod.
func (r *parser) applyAnnotations(request *Request) {
	granted := request.RequestsGPU()
	if granted && r.admitted {
		return
	}
	amounts := r.parseAmounts()
	if granted {
		r.rejectShareBesideResource()
		return
	}
	devices := r.parseDevices(amounts)
	if len(amounts) == 0 {
		return
	}
	first := amounts[0]
	for _, second := range amounts[1:] {
		if r.admitted && second.share > 0 && second.share == first.share.kaiShare() {
			first.share = second.share
			continue
		}
		same := second.wholeGPUs == first.wholeGPUs && second.share == first.share && second.memoryMiB == first.memoryMiB
		r.rejectDuplicate(second.path(), second.value, first.path(), first.value, same)
	}
	request.Devices = devices
	switch {
	case first.wholeGPUs > 0:
		request.Form, request.Share, request.Devices = FormWhole, oneGPU, first.wholeGPUs
	case first.share > 0:
		request.Form, request.Share = FormShare, first.share
	default:
		request.Form, request.MemoryMiB = FormMemory, first.memoryMiB
	}
	request.countGPUs()
	if c := r.shareContainer(); c != nil {
		request.Container = c.Name
	} else if n := r.annotations.container; n.isSet {
		r.addInvalid(n.path(), n.value, "must be the name of one of the pod's containers or init containers")
	}
}

// kaiShare returns the share that a pod gets of KAI-Scheduler, which counts in hundredths.
func (m Milli) kaiShare() Milli { return (m + 9) / 10 * 10 }

// rejectDuplicate rejects a second annotation with the meaning of the first. In an admitted pod,
// an equal annotation of the scheduler is allowed.
func (r *parser) rejectDuplicate(path, value, first, firstValue string, same bool) {
	relation := "repeats "
	switch {
	case !same:
		relation = "contradicts "
	case r.admitted:
		return
	}
	r.addInvalid(path, value, relation+first+", "+strconv.Quote(truncateValue(firstValue))+"; keep one of the two")
}

// rejectShareBesideResource rejects annotations for shares beside a GPU resource.
func (r *parser) rejectShareBesideResource() {
	resource := &r.gpuTally.entries[0]
	for _, n := range [...]annotation{r.annotations.gpu, r.annotations.fraction, r.annotations.memory, r.annotations.devices} {
		if n.isSet {
			r.addInvalid(n.path(), n.value, "cannot go with "+resource.fieldPath()+", "+strconv.Quote(strconv.FormatInt(resource.total(), 10))+
				"; a pod requests GPUs by a resource or by an annotation, keep one of the two")
		}
	}
}

// parseDevices returns the number of GPUs on which a share is requested.
func (r *parser) parseDevices(amounts []annotatedAmount) int64 {
	n := r.annotations.devices
	if !n.isSet {
		return 1
	}
	count, ok := parseWholeNumber(n.value, maxDevices)
	switch {
	case !ok || count == 0:
		r.addInvalid(n.path(), n.value, "must be a number of GPUs from 1 to "+strconv.Itoa(maxDevices))
	case !r.annotations.hasAmount():
		r.addInvalid(n.path(), n.value, "sets the number of GPUs of a share; set the share, too, with "+
			v1alpha1.AnnotationGPUFraction+", "+v1alpha1.AnnotationGPUMemory+" or "+v1alpha1.AnnotationGPU)
	case len(amounts) > 0 && amounts[0].wholeGPUs > 0:
		r.addInvalid(n.path(), n.value, "is for shares, and "+amounts[0].path()+" requests whole GPUs, "+
			strconv.Quote(amounts[0].value)+"; remove it, or request less than one GPU there")
	}
	return count
}

// shareContainer returns the container that gets the share: the one that the annotation names,
// else the first.
func (r *parser) shareContainer() *corev1.Container {
	if n := r.annotations.container; n.isSet {
		_, c := r.containerByName(n.value)
		return c
	}
	if len(r.spec.Containers) == 0 {
		return nil // the API server refuses the pod
	}
	return &r.spec.Containers[0]
}

// containerByName returns the regular or init container with that name, or nil.
func (r *parser) containerByName(name string) (containerPath, *corev1.Container) {
	for i := range r.spec.Containers {
		if r.spec.Containers[i].Name == name {
			return containerPath{regularContainers, i}, &r.spec.Containers[i]
		}
	}
	for i := range r.spec.InitContainers {
		if r.spec.InitContainers[i].Name == name {
			return containerPath{initContainers, i}, &r.spec.InitContainers[i]
		}
	}
	return containerPath{}, nil
}
