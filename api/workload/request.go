// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Form is how a pod has its GPUs.
type Form string

// The forms, and what one device of each is.
const (
	// FormNone: the pod asks for no GPU; it may still have DRA claims.
	FormNone Form = "None"
	// FormWhole: a device is a GPU, as far as the pod can tell.
	FormWhole Form = "Whole"
	// FormShare: a device is a part of a GPU, Share.
	FormShare Form = "Share"
	// FormMemory: a device is MemoryMiB of a GPU.
	FormMemory Form = "Memory"
	// FormReplica: a device is one of the replicas into which a GPU is divided.
	FormReplica Form = "Replica"
	// FormMIG: a device is a GPU instance of MIGProfile.
	FormMIG Form = "MIG"
)

// Request is what one pod asks for. Every field is always there in JSON, so that
// a policy never meets an undefined value where nothing was said: text is then
// empty, a number 0, a list or an object empty.
type Request struct {
	// Type is what the pod's author said it is for: train, interactive or
	// inference. Which type holds where nothing was said, a policy decides.
	Type v1alpha1.WorkloadType `json:"type"`
	// HasTTY is whether the first regular container has a terminal.
	HasTTY bool `json:"hasTTY"`
	// Owner is the kind of the pod's controller. A template has none: whoever reads
	// one out of a Job says that it is a Job's.
	Owner Owner `json:"owner"`

	// Form is how the pod has its GPUs; None where it asks for none.
	Form Form `json:"form"`
	// Devices is how many of that form: GPUs, shares on as many GPUs, slices.
	Devices int64 `json:"devices"`
	// Share is the part of its GPU that each device is: 1 in form Whole, between
	// 0.001 and 0.999 in form Share, else 0 for not known.
	Share Milli `json:"share"`
	// ShareLimit is the part of its GPU's memory up to which each device may go
	// where the pool can burst; 0 is no such limit. Never below Share.
	ShareLimit Milli `json:"shareLimit"`
	// MemoryMiB is the memory of each device in form Memory, else 0.
	MemoryMiB int64 `json:"memoryMiB"`
	// MemoryLimitMiB is the memory up to which each device may go where the pool can
	// burst; 0 is no such limit. Never below MemoryMiB.
	MemoryLimitMiB int64 `json:"memoryLimitMiB"`
	// ComputeShare is the part of each GPU's compute that the pod is content with,
	// where it says so (HAMi's and Volcano's cores); 0 is not said.
	ComputeShare Milli `json:"computeShare"`
	// MIGProfile is the profile of each device in form MIG: 3g.40gb, 1g.10gb+me.
	MIGProfile v1alpha1.MIGProfile `json:"migProfile"`
	// GPUs is how many physical GPUs that is at most: exact in the forms Whole and
	// Share, a GPU for each device in the others, of which only the pool's boards
	// can tell.
	GPUs Milli `json:"gpus"`
	// Container is the name of the container that has the GPU; of several the first,
	// regular ones before init containers.
	Container string `json:"container"`
	// Resources are the extended resources of GPUs that the containers ask for, as
	// the API server adds them up. Resources that only say how large a device is
	// (HAMi's memory and cores) are not among them.
	Resources Amounts `json:"resources"`
	// OtherResources are the names of extended resources that are not known as
	// GPUs, sorted: other devices, or GPUs of a vendor that nobody listed.
	OtherResources []string `json:"otherResources"`

	// Claims are the pod's DRA claims, in its author's order. What is in them only
	// the claims themselves can tell.
	Claims []Claim `json:"claims"`
	// DeviceClasses are devices that are asked for by DeviceClass as if they were
	// extended resources (deviceclass.resource.kubernetes.io/<class>), by class.
	DeviceClasses Amounts `json:"deviceClasses"`

	// NodePools are the pools that the author would like, in order of preference;
	// empty for any of the project's.
	NodePools []string `json:"nodePools"`
	// MaxRuntime is the time limit that the author wants; it may shorten the
	// project's, never lengthen it. Empty where nothing was said.
	MaxRuntime period.Duration `json:"maxRuntime"`
	// MaxRuntimeSeconds is the same in seconds; 0 where nothing was said.
	MaxRuntimeSeconds int64 `json:"maxRuntimeSeconds"`
}

// Owner is a kind of object that makes pods: {batch, Job}. Both are empty for a
// pod without a controller.
type Owner struct {
	// Group is the API group, without version; empty for the core group.
	Group string `json:"group"`
	// Kind is the kind.
	Kind string `json:"kind"`
}

// Claim is one entry of a pod's spec.resourceClaims.
type Claim struct {
	// Name is the claim's name within the pod.
	Name string `json:"name"`
	// Claim is the ResourceClaim, where the pod names one.
	Claim string `json:"claim"`
	// Template is the ResourceClaimTemplate, where the pod names one.
	Template string `json:"template"`
}

// RequestsGPU is whether the pod asks for GPUs by a resource or an annotation.
// DRA claims are for whoever can look into them.
func (r *Request) RequestsGPU() bool { return r.Form != FormNone && r.Form != "" }

// Milli is thousandths of one GPU. In JSON and in print it is a decimal number:
// 500 is 0.5.
type Milli int64

// oneGPU is a whole GPU.
const oneGPU Milli = 1000

// String is the decimal number, without needless zeros.
func (m Milli) String() string { return string(m.appendTo(make([]byte, 0, 24))) }

// MarshalJSON writes the decimal number.
func (m Milli) MarshalJSON() ([]byte, error) { return m.appendTo(make([]byte, 0, 24)), nil }

// UnmarshalJSON reads a decimal number of at least 0, in steps of a thousandth.
func (m *Milli) UnmarshalJSON(raw []byte) error {
	value, exact, ok := parseDecimal(string(raw))
	if !ok || !exact {
		return fmt.Errorf("%s GPUs: want a number of at least 0 with at most three decimals, such as 0.5", raw)
	}
	*m = value
	return nil
}

func (m Milli) appendTo(to []byte) []byte {
	if m < 0 {
		to = append(to, '-')
		m = -m
	}
	to = strconv.AppendInt(to, int64(m/oneGPU), 10)
	if rest := int64(m % oneGPU); rest > 0 {
		to = append(to, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
		to = bytes.TrimRight(to, "0")
	}
	return to
}

// maxWholeGPUs is how many whole GPUs a decimal number may have: more than anybody
// can be given, and far from overflow.
const maxWholeGPUs = 1_000_000

// parseDecimal reads digits with at most one point: "2", "0.25", ".5". What is beyond
// the third decimal is cut off, and the value is then not exact. There is no sign
// and no exponent.
func parseDecimal(text string) (value Milli, exact, ok bool) {
	before, after, _ := strings.Cut(text, ".")
	whole, ok := int64(0), before != "" || after != ""
	if before != "" {
		whole, ok = parseWholeNumber(before, maxWholeGPUs)
	}
	value, exact = Milli(whole)*oneGPU, true
	for place := range len(after) {
		digit := after[place]
		switch {
		case !isDigit(digit):
			return 0, false, false
		case place < 3:
			value += Milli(digit-'0') * [...]Milli{100, 10, 1}[place]
		case digit != '0':
			exact = false
		}
	}
	return value, exact, ok
}

// parseWholeNumber reads digits alone, up to most; that is never near overflow.
func parseWholeNumber(text string, most int64) (value int64, ok bool) {
	if text == "" {
		return 0, false
	}
	for at := range len(text) {
		if !isDigit(text[at]) {
			return 0, false
		}
		if value = value*10 + int64(text[at]-'0'); value > most {
			return 0, false
		}
	}
	return value, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// Describe is the amount as sentences have it: "no GPUs", "0.5 of a GPU", "1 GPU",
// "1.5 GPUs".
func (m Milli) Describe() string {
	switch {
	case m == 0:
		return "no GPUs"
	case 0 < m && m < oneGPU:
		return m.String() + " of a GPU"
	case m == oneGPU:
		return "1 GPU"
	default:
		return m.String() + " GPUs"
	}
}

// IsPodTerminal tells that a pod runs nothing any more and never will: it has no claim on
// anything. One that is being deleted may still run.
func IsPodTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
