// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// said reads the annotations that say how much, ours first.
func (r *reader) said() []amount {
	if !r.notes.amount() {
		return nil
	}
	said := make([]amount, 0, 3)
	if n := r.notes.gpu; n.set {
		if a, wrong := gpuAmount(n); wrong == "" {
			said = append(said, a)
		} else {
			r.invalid(n.path(), n.value, wrong)
		}
	}
	if n := r.notes.fraction; n.set {
		if share, wrong := part(n.value, one-1); wrong == "" {
			said = append(said, amount{note: n, share: share})
		} else {
			r.invalid(n.path(), n.value, wrong+"; whole GPUs are asked for as "+string(v1alpha1.ResourceNVIDIAGPU)+" in a container's limits")
		}
	}
	if n := r.notes.memory; n.set {
		if memory, ok := wholeNumber(n.value, mostMemoryMiB); ok && memory > 0 {
			said = append(said, amount{note: n, memoryMiB: memory})
		} else {
			r.invalid(n.path(), n.value, "must be MiB of one GPU's memory, a whole number from 1 to "+strconv.Itoa(mostMemoryMiB)+", such as 8192")
		}
	}
	return said
}

// part reads a part of one GPU, up to most. GPUs are counted in thousandths; more
// decimals are refused, since rounding them would charge what nobody wrote.
func part(text string, most Milli) (share Milli, wrong string) {
	share, exact, ok := decimal(text)
	switch {
	case ok && exact && share > 0 && share <= most:
		return share, ""
	case ok && !exact && share < most:
		return 0, "has more than three decimals; write for example " + (share + 1).String()
	}
	return 0, "must be a decimal from " + Milli(1).String() + " to " + most.String() + " with at most three decimals, such as 0.5"
}

// amount reports whether any annotation says how much.
func (n *notes) amount() bool { return n.gpu.set || n.fraction.set || n.memory.set }

// gpuAmount reads our own annotation, a quantity in steps of a thousandth as
// quotas are. A part lies on one GPU, so above one there are whole GPUs only.
func gpuAmount(n note) (a amount, wrong string) {
	value, exact, ok := decimal(n.value)
	if thousandths, cut := strings.CutSuffix(n.value, "m"); cut {
		var count int64
		count, ok = wholeNumber(thousandths, mostDevices*int64(one))
		value, exact = Milli(count), true
	}
	switch {
	case !ok || !exact || value == 0 || value > Milli(mostDevices)*one:
		return a, notAnAmount(n.value)
	case value < one:
		return amount{note: n, share: value}, ""
	case value%one == 0:
		return amount{note: n, whole: int64(value / one)}, ""
	}
	devices := int64(value/one) + 1
	each := (int64(value) + devices - 1) / devices
	return a, fmt.Sprintf("must be less than one GPU or whole GPUs, since a part lies on one GPU; ask for %d, or for %dm with %s: %q",
		devices, each, v1alpha1.AnnotationGPUFractionDevices, strconv.FormatInt(devices, 10))
}

// notAnAmount is the refusal of a text that is no amount of GPUs. Profiles are
// what people write there most.
func notAnAmount(text string) string {
	if refusal := computeInstance(text); refusal != "" {
		return refusal
	}
	if isProfile(text) {
		return "is a MIG profile, which is asked for in a container's limits: " + string(v1alpha1.ResourceMIG(v1alpha1.MIGProfile(text)))
	}
	return "must be a part of one GPU in thousandths such as 500m or 0.5, or whole GPUs such as 2"
}
