// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ProjectExpiry is what the expiry of a project is decided from, besides its phase, its periods and
// the next step. All times are policy time.
type ProjectExpiry struct {
	// Validity is the validity from which the next step was computed. Another validity of the
	// department schedules the expiry again, with all warnings ahead.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Validity string `json:"validity,omitempty"`

	// Anchor is the start of the first period from which the next step was computed: the project's
	// creation, or 00:00 UTC of spec.validFrom, in whatever time zone its days are.
	//
	// +optional
	Anchor *metav1.Time `json:"anchor,omitempty"`

	// FirstWarnedAt is when the first warning of the next step was sent.
	//
	// +optional
	FirstWarnedAt *metav1.Time `json:"firstWarnedAt,omitempty"`

	// LastWarnedAt is when the last warning of the next step was sent.
	//
	// +optional
	LastWarnedAt *metav1.Time `json:"lastWarnedAt,omitempty"`

	// UnsentSince is since when a warning of the next step is due and not sent, without the time in
	// which mail was paused. After three days the warning goes to the contacts of the department.
	//
	// +optional
	UnsentSince *metav1.Time `json:"unsentSince,omitempty"`

	// MovedAt is when the next step was last postponed, because a warning was late.
	//
	// +optional
	MovedAt *metav1.Time `json:"movedAt,omitempty"`

	// RequestHeldSince is the time of the request of a renewal that holds the next step, which is due,
	// until it is decided, for at most 30 days. One request in each period does so.
	//
	// +optional
	RequestHeldSince *metav1.Time `json:"requestHeldSince,omitempty"`

	// ShortenedFrom is the former time of the project's suspension, if changed terms of the department
	// brought it forward. The stop limiter counts the workloads that such a suspension stops.
	//
	// +optional
	ShortenedFrom *metav1.Time `json:"shortenedFrom,omitempty"`

	// Deletion is the approval of the project's deletion. It is absent before, and after a renewal.
	//
	// +optional
	Deletion *ProjectDeletionApproval `json:"deletion,omitempty"`

	// DismissedUntil is until when the deletion of a suspended project is not requested again, because
	// an administrator dismissed it.
	//
	// +optional
	DismissedUntil *metav1.Time `json:"dismissedUntil,omitempty"`

	// SelfServiceRenewals is the number of renewals without approval over the project's life.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	SelfServiceRenewals int32 `json:"selfServiceRenewals,omitempty"`

	// LastRenewal is the last renewal.
	//
	// +optional
	LastRenewal *ProjectRenewal `json:"lastRenewal,omitempty"`
}

// ProjectRenewal is a renewal that was applied.
type ProjectRenewal struct {
	// Extension is the name of the Extension that requested it.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Extension string `json:"extension"`

	// UID is the Extension's UID.
	//
	// +required
	UID types.UID `json:"uid"`

	// At is when the renewal was applied, in policy time.
	//
	// +required
	At metav1.Time `json:"at"`

	// RequestedBy is the name of the user who requested it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	RequestedBy string `json:"requestedBy,omitempty"`

	// OnBehalfOf is the address of the owner for whom an administrator requested it.
	//
	// +optional
	OnBehalfOf EmailAddress `json:"onBehalfOf,omitempty"`

	// ApprovedBy is the name of the user who approved it; empty for self-service.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ApprovedBy string `json:"approvedBy,omitempty"`
}

// ProjectDeletionApproval is the approval of a project's deletion, which begins seven days after its
// owners were told. It is kept here since the namespace, which has the Extension, can be deleted.
type ProjectDeletionApproval struct {
	// Extension is the name of the Extension that requested it.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Extension string `json:"extension"`

	// UID is the Extension's UID.
	//
	// +required
	UID types.UID `json:"uid"`

	// At is when the deletion was approved, in policy time.
	//
	// +required
	At metav1.Time `json:"at"`

	// ApprovedBy is the name of the administrator who approved it.
	//
	// +required
	// +kubebuilder:validation:MaxLength=1024
	ApprovedBy string `json:"approvedBy"`

	// Message is the administrator's comment.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=500
	Message string `json:"message,omitempty"`
}
