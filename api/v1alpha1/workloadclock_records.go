// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
)

// ClockLead is a warning that was recorded.
type ClockLead struct {
	// Lead is the time between the warning's due time and the end.
	//
	// +required
	Lead period.Duration `json:"lead"`

	// Reason is the reason for the end.
	//
	// +required
	Reason EndReason `json:"reason"`

	// LimitSeconds is the limit of the running time in seconds that the warning named, if the
	// reason is MaxRuntime.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	LimitSeconds int64 `json:"limitSeconds,omitempty"`

	// At is when the warning was recorded.
	//
	// +required
	At metav1.Time `json:"at"`
}

// ClockExtension is a granted extension.
type ClockExtension struct {
	// Name is the name of the Extension.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// By is the added time.
	//
	// +required
	By period.Duration `json:"by"`

	// At is when the extension was granted.
	//
	// +required
	At metav1.Time `json:"at"`

	// SelfService is true if the extension was granted without approval.
	//
	// +optional
	SelfService bool `json:"selfService,omitempty"`
}

// ClockStop records a stop by Sluice.
type ClockStop struct {
	// At is when the workload was stopped.
	//
	// +required
	At metav1.Time `json:"at"`

	// Reason is why the workload was stopped.
	//
	// +required
	Reason EndReason `json:"reason"`

	// Until is when the workload may be started again and its clock is reset. It equals at if
	// the workload may be started again immediately. It is absent if an approver must decide
	// first.
	//
	// +optional
	Until *metav1.Time `json:"until,omitempty"`

	// Retries is the number of further attempts to stop the workload because its pods ran on: two
	// by the stop action of its kind, then three evictions of its pods. After these the
	// workload is Unstoppable.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Retries int32 `json:"retries,omitempty"`

	// Times is the number of times that Sluice stopped the workload again because it was
	// started before until.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Times int32 `json:"times,omitempty"`
}

// ClockGPUUsage is the use of GPUs by a workload, as the agents of its nodes sampled it. A figure that
// is unknown for any running pod is absent.
type ClockGPUUsage struct {
	// ShareMiB is the GPU memory that the running pods may use, in MiB.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ShareMiB *int64 `json:"shareMiB,omitempty"`

	// MemoryMiB is the GPU memory that the running pods use, in MiB. It is written again when it
	// changed by a twentieth.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB *int64 `json:"memoryMiB,omitempty"`

	// LastActive is when any running pod last used a GPU. It equals sampledAt while one is used.
	//
	// +optional
	LastActive *metav1.Time `json:"lastActive,omitempty"`

	// SampledAt is when the figures above were sampled: the oldest sample of the nodes of the
	// running pods. It is absent if no pod runs, or one of these nodes has no fresh sample.
	//
	// +optional
	SampledAt *metav1.Time `json:"sampledAt,omitempty"`

	// CountedUntil is until when days count. The GPUs that the workload held since then, which
	// are in gpus, are not included.
	//
	// +optional
	CountedUntil *metav1.Time `json:"countedUntil,omitempty"`

	// Days are the GPU time of each day with any, the oldest first: of the last 31 days until
	// countedUntil. They are not reset with the clock.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=31
	Days []ClockGPUDay `json:"days,omitempty"`
}

// MaxClockGPUDays is the largest number of days whose GPU time a clock keeps.
const MaxClockGPUDays = 31

// ClockGPUDay is the GPU time of a workload on one day.
type ClockGPUDay struct {
	// Date is the day in UTC, YYYY-MM-DD.
	//
	// +required
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
	Date string `json:"date"`

	// GPUMilliSeconds is the requested GPU time in thousandths of a GPU multiplied by seconds:
	// 3600000 is one GPU for one hour. Pods count from their binding to a node.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	GPUMilliSeconds int64 `json:"gpuMilliSeconds"`

	// UsedGPUMilliSeconds is the part of gpuMilliSeconds in which the pods used their GPUs.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	UsedGPUMilliSeconds int64 `json:"usedGPUMilliSeconds,omitempty"`

	// IdleGPUMilliSeconds is the part of gpuMilliSeconds in which the pods did not use their
	// GPUs. The rest was not measured.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	IdleGPUMilliSeconds int64 `json:"idleGPUMilliSeconds,omitempty"`
}
