// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ProjectPhase is the step of its life at which a project is.
//
// +kubebuilder:validation:Enum=Active;Expiring;Expired;Suspended;PendingDeletion;Deleting
type ProjectPhase string

// The phases of a project, in order.
const (
	// ProjectActive: everything works.
	ProjectActive ProjectPhase = "Active"
	// ProjectExpiring: everything works; the end was announced, or the owners were asked.
	ProjectExpiring ProjectPhase = "Expiring"
	// ProjectExpired: no new GPU pods; what runs runs on.
	ProjectExpired ProjectPhase = "Expired"
	// ProjectSuspended: what ran was stopped.
	ProjectSuspended ProjectPhase = "Suspended"
	// ProjectPendingDeletion: an administrator is asked to approve the deletion.
	ProjectPendingDeletion ProjectPhase = "PendingDeletion"
	// ProjectDeleting: workloads, role bindings and rendered objects are taken away.
	ProjectDeleting ProjectPhase = "Deleting"
)

// NamespaceOrigin says where a project's namespace came from.
//
// +kubebuilder:validation:Enum=Created;Adopted
type NamespaceOrigin string

// The origins of a namespace.
const (
	// NamespaceCreated by Sluice for this project; only such a one is ever deleted.
	NamespaceCreated NamespaceOrigin = "Created"
	// NamespaceAdopted was there before the project and outlives it.
	NamespaceAdopted NamespaceOrigin = "Adopted"
)

// ProjectNamespace is the namespace in which a project works.
type ProjectNamespace struct {
	// Name is its name.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// UID tells it from another that once had the same name.
	//
	// +required
	UID types.UID `json:"uid"`

	// Origin is Created or Adopted.
	//
	// +required
	Origin NamespaceOrigin `json:"origin"`
}

// ProjectStep is a phase that lies ahead.
type ProjectStep struct {
	// Phase is the phase that begins.
	//
	// +required
	Phase ProjectPhase `json:"phase"`

	// At is when, at the earliest: warnings that could not be sent put it off.
	//
	// +required
	At metav1.Time `json:"at"`
}

// ProjectStatus is where a project stands.
type ProjectStatus struct {
	// ObservedGeneration is the generation of the spec that this status speaks of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase is the step of its life at which the project is.
	//
	// +optional
	Phase ProjectPhase `json:"phase,omitempty"`

	// PhaseSince is when that phase began, in policy time.
	//
	// +optional
	PhaseSince *metav1.Time `json:"phaseSince,omitempty"`

	// Namespace is the namespace in which the project works.
	//
	// +optional
	Namespace *ProjectNamespace `json:"namespace,omitempty"`

	// ExpiresAt is the instant at which the present validity is over. It is absent
	// where the department sets no validity.
	//
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// Periods is how many whole periods of validity the project was given, counted
	// from its anchor: 1, and one more with each renewal.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Periods int32 `json:"periods,omitempty"`

	// Next is the step that follows if nobody does anything.
	//
	// +optional
	Next *ProjectStep `json:"next,omitempty"`

	// DeletionRequest is the name of the Extension, in the project's namespace, by
	// which the approval of its deletion is asked for.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DeletionRequest string `json:"deletionRequest,omitempty"`

	// GPU is the project's quota and use, over all node pools.
	//
	// +optional
	GPU GPUUsage `json:"gpu,omitempty,omitzero"`

	// NodePools is the same, pool by pool.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	NodePools []PoolUsage `json:"nodePools,omitempty"`

	// Conditions are Ready, QuotaApplied, QueueApplied, Uncounted, Pending, Held,
	// Exempt and Unsupported.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
