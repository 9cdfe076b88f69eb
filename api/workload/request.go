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

// Form is the way in which a pod requests GPUs.
type Form string

// The forms, and what one device of each is.
const (
	// FormNone means that the pod requests no GPU. It may still have DRA claims.
	FormNone Form = "None"
	// FormWhole means that a device is a GPU, as far as the pod determines it.
	FormWhole Form = "Whole"
	// FormShare means that a device is the part Share of a GPU.
	FormShare Form = "Share"
	// FormMemory means that a device is MemoryMiB of a GPU.
	FormMemory Form = "Memory"
	// FormReplica means that a device is one of the replicas into which a GPU is divided.
	FormReplica Form = "Replica"
	// FormMIG means that a device is a MIG instance of MIGProfile.
	FormMIG Form = "MIG"
)

// Request is the GPU request of one pod. JSON always contains every field, so that policies read
// no undefined values: unset fields are "", 0, [] or {}.
type Request struct {
	// Type is the workload type from the user's label: train, interactive or inference. If it
	// is empty, a policy decides the type.
	Type v1alpha1.WorkloadType `json:"type"`
	// HasTTY is true if the first regular container has a terminal.
	HasTTY bool `json:"hasTTY"`
	// Owner is the kind of the pod's controller. A template has none; the caller sets it for
	// a template of a Job.
	Owner Owner `json:"owner"`

	// Form is the way in which the pod requests GPUs, None without a request.
	Form Form `json:"form"`
	// Devices is the number of devices: GPUs, shares on as many GPUs, or MIG instances.
	Devices int64 `json:"devices"`
	// Share is the part of its GPU that each device is: 1 in form Whole, 0.001 to 0.999 in
	// form Share, else 0 for unknown.
	Share Milli `json:"share"`
	// ShareLimit is the part of its GPU's memory up to which each device may burst, if the
	// node pool allows it. 0 means no such limit. In form Share it is never below Share. In an
	// admitted pod that has a resource for its share, it is the limit that its author set.
	ShareLimit Milli `json:"shareLimit"`
	// MemoryMiB is the memory of each device in form Memory, else 0.
	MemoryMiB int64 `json:"memoryMiB"`
	// MemoryLimitMiB is the memory up to which each device may burst, if the node pool allows
	// it. 0 means no such limit. It is never below MemoryMiB.
	MemoryLimitMiB int64 `json:"memoryLimitMiB"`
	// ComputeShare is the part of each GPU's compute that the pod requests with HAMi's or
	// Volcano's cores. 0 means that it is not set.
	ComputeShare Milli `json:"computeShare"`
	// MIGProfile is the profile of each device in form MIG, such as 3g.40gb or 1g.10gb+me.
	MIGProfile v1alpha1.MIGProfile `json:"migProfile"`
	// GPUs is the largest possible number of physical GPUs: exact in the forms Whole and
	// Share, else one GPU for each device.
	GPUs Milli `json:"gpus"`
	// Container is the name of the first container with the GPU, regular containers before
	// init containers.
	Container string `json:"container"`
	// Resources are the extended GPU resources of the containers, summed as the API server
	// does. Resources for the size of devices (HAMi's memory and cores) are left out.
	Resources Amounts `json:"resources"`
	// OtherResources are the names of extended resources that no list knows, sorted: neither as
	// GPUs, by Sluice or a NodePool, nor as other devices, by the AdmissionParameters.
	OtherResources []string `json:"otherResources"`
	// Requests are what a scheduler reserves for the pod, with all its containers and its
	// overhead, of the resources of the node itself: cpu in thousandths of a CPU, and memory,
	// ephemeral-storage and hugepages-<size> in bytes. What is not requested is left out.
	Requests Amounts `json:"requests"`

	// Claims are the pod's DRA claims, in the user's order.
	Claims []Claim `json:"claims"`
	// DeviceClasses are devices requested by DeviceClass as extended resources
	// (deviceclass.resource.kubernetes.io/<class>), by class.
	DeviceClasses Amounts `json:"deviceClasses"`

	// NodePools are the preferred node pools, in order of preference. An empty list allows
	// any of the project's.
	NodePools []string `json:"nodePools"`
	// MaxRuntime is the user's time limit. It may shorten the project's limit, never extend
	// it.
	MaxRuntime period.Duration `json:"maxRuntime"`
	// MaxRuntimeSeconds is MaxRuntime in seconds, or 0.
	MaxRuntimeSeconds int64 `json:"maxRuntimeSeconds"`
}

// Owner is a kind of controller, such as {batch, Job}. Both fields are empty for a pod without a
// controller.
type Owner struct {
	// Group is the API group without version, empty for the core group.
	Group string `json:"group"`
	// Kind is the kind.
	Kind string `json:"kind"`
}

// Claim is one entry of a pod's spec.resourceClaims.
type Claim struct {
	// Name is the claim's name within the pod.
	Name string `json:"name"`
	// Claim is the name of the ResourceClaim, if the pod names one.
	Claim string `json:"claim"`
	// Template is the name of the ResourceClaimTemplate, if the pod names one.
	Template string `json:"template"`
}

// RequestsGPU reports whether the pod requests GPUs by a resource or an annotation. It ignores
// DRA claims.
func (r *Request) RequestsGPU() bool { return r.Form != FormNone && r.Form != "" }

// Milli is thousandths of one GPU. In JSON and text it is a decimal number: 500 is 0.5.
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

// maxWholeGPUs is the largest decimal number of whole GPUs, far below an overflow.
const maxWholeGPUs = 1_000_000

// parseDecimal reads digits with at most one point: "2", "0.25", ".5". Digits after the third
// decimal are dropped, and the value is then not exact. Signs and exponents are invalid.
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

// parseWholeNumber reads digits up to the value most.
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

// Describe formats the amount for sentences: "no GPUs", "0.5 of a GPU", "1 GPU", "1.5 GPUs".
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

// IsPodTerminal reports whether a pod has ended and will not run again. A pod that is being
// deleted may still run.
func IsPodTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
