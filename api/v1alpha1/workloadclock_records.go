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
