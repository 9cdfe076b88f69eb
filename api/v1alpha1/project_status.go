// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ProjectPhase is the phase of a project's life cycle.
//
// +kubebuilder:validation:Enum=Active;Expiring;Expired;Suspended;PendingDeletion;Deleting
type ProjectPhase string

// The phases of a project, in order.
const (
	// ProjectActive means that the project works without restrictions.
	ProjectActive ProjectPhase = "Active"
	// ProjectExpiring means that the owners were warned of the expiry or asked to confirm the
	// project. The project still works without restrictions.
	ProjectExpiring ProjectPhase = "Expiring"
	// ProjectExpired means that new GPU pods are rejected. Running workloads continue.
	ProjectExpired ProjectPhase = "Expired"
	// ProjectSuspended means that the workloads with GPUs were stopped, and none can be started.
	ProjectSuspended ProjectPhase = "Suspended"
	// ProjectPendingDeletion means that an administrator must approve the deletion, or that it was
	// approved and begins soon. A project that had expired stays suspended; one whose owners did not
	// confirm it still works.
	ProjectPendingDeletion ProjectPhase = "PendingDeletion"
	// ProjectDeleting means that workloads, role bindings and rendered objects are being
	// deleted.
	ProjectDeleting ProjectPhase = "Deleting"
)

// IsRenewable reports whether a project in this phase can get another period of validity.
func (p ProjectPhase) IsRenewable() bool {
	return p == ProjectExpiring || p == ProjectExpired || p == ProjectSuspended || p == ProjectPendingDeletion
}

// StopsWorkloads returns why the project's workloads with GPUs are stopped whatever their limits are:
// EndProjectSuspended or EndProjectDeleted, or "" if they are not.
func (p *Project) StopsWorkloads() EndReason {
	switch {
	case !p.DeletionTimestamp.IsZero(), p.Status.Phase == ProjectDeleting:
		return EndProjectDeleted
	case p.Status.Phase == ProjectSuspended, p.Status.Phase == ProjectPendingDeletion && p.Status.ClosedAt != nil:
		return EndProjectSuspended
	}
	return ""
}

// NamespaceOrigin records whether Sluice created the namespace of a project.
//
// +kubebuilder:validation:Enum=Created;Adopted
type NamespaceOrigin string

// The origins of a namespace.
const (
	// NamespaceCreated marks a namespace that Sluice created for the project. Sluice deletes
	// no other namespace.
	NamespaceCreated NamespaceOrigin = "Created"
	// NamespaceAdopted marks a namespace that existed before the project. Sluice never
	// deletes it.
	NamespaceAdopted NamespaceOrigin = "Adopted"
)

// ProjectNamespace is the namespace of a project.
type ProjectNamespace struct {
	// Name is the namespace's name.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// UID is the namespace's UID. It differs if the namespace was deleted and created again.
	//
	// +required
	UID types.UID `json:"uid"`

	// Origin is Created if Sluice created the namespace, else Adopted.
	//
	// +required
	Origin NamespaceOrigin `json:"origin"`
}

// ProjectStep is a future change of phase.
type ProjectStep struct {
	// Phase is the next phase.
	//
	// +required
	Phase ProjectPhase `json:"phase"`

	// At is the earliest time of the change, in policy time. The change is postponed if its
	// warnings could not be sent.
	//
	// +required
	At metav1.Time `json:"at"`
}

// WorkloadUsage is the GPU quota that a workload holds in one node pool.
type WorkloadUsage struct {
	// Kind is the kind of the root workload, such as Job.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Name is the name of the root workload.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// CreatedBy is the name of the user who created the workload. It is absent if that is not
	// known.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	CreatedBy string `json:"createdBy,omitempty"`

	// NodePool is the name of the node pool. It is absent if Sluice did not admit the pods.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	NodePool string `json:"nodePool,omitempty"`

	// GPUs is the quota of its bound pods in physical GPUs: 500m is half a GPU.
	//
	// +required
	GPUs resource.Quantity `json:"gpus"`

	// Since is the start of its running interval in policy time, or, while no pod has started,
	// when the first was bound. It is absent if that is not known.
	//
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// The limits of ExtensionRequests in a project's status within a day, of one requester and of all. They
// limit the mails that members cause to the contacts of the department.
const (
	MaxExtensionRequestsOfUser = 10
	MaxExtensionRequests       = 100
)

// ExtensionRequest is an Extension that people had to decide on. It stays when the Extension is deleted.
type ExtensionRequest struct {
	// UID is the Extension's UID.
	//
	// +required
	UID types.UID `json:"uid"`

	// Requester is a hash of the name of the user who requested it, as in the label
	// sluice.dev/creator.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Requester string `json:"requester"`

	// Workload is the name of the WorkloadClock of the workload. It is absent for a renewal of the
	// project.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Workload string `json:"workload,omitempty"`

	// At is when it was requested, in policy time.
	//
	// +required
	At metav1.Time `json:"at"`

	// MailAt is when the contacts of the department get a mail about it, in policy time. One mail
	// has all requests of a requester for a workload with the same time.
	//
	// +required
	MailAt metav1.Time `json:"mailAt"`
}

// RecentExtensionRequests returns the ExtensionRequests of the last day, of one user or, if the user is empty, of all.
func (s *ProjectStatus) RecentExtensionRequests(user string, now time.Time) []ExtensionRequest {
	return slices.DeleteFunc(slices.Clone(s.ExtensionRequests), func(r ExtensionRequest) bool {
		return !now.Before(r.At.Add(24*time.Hour)) || user != "" && r.Requester != CreatorLabel(user)
	})
}

// ProjectStatus is the observed state of a project.
type ProjectStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase is the current phase of the project's life cycle.
	//
	// +optional
	Phase ProjectPhase `json:"phase,omitempty"`

	// PhaseSince is when the current phase began, in policy time.
	//
	// +optional
	PhaseSince *metav1.Time `json:"phaseSince,omitempty"`

	// Namespace is the namespace of the project.
	//
	// +optional
	Namespace *ProjectNamespace `json:"namespace,omitempty"`

	// ExpiresAt is when the current validity ends. It is absent if the department sets no
	// validity.
	//
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// Periods is the number of whole periods of validity that the project has, counted from
	// its start: 1, plus one for each renewal.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Periods int32 `json:"periods,omitempty"`

	// Next is the phase that follows if the project is not renewed.
	//
	// +optional
	Next *ProjectStep `json:"next,omitempty"`

	// ClosedAt is since when the project accepts no new pods with GPUs, in policy time: since its expiry,
	// or since its deletion began. It is absent while it accepts them, which a project does that awaits
	// the approval of its deletion because no owner confirmed it.
	//
	// +optional
	ClosedAt *metav1.Time `json:"closedAt,omitempty"`

	// Expiry is what the next step is decided from.
	//
	// +optional
	Expiry *ProjectExpiry `json:"expiry,omitempty"`

	// DeletionRequest is the name of the Extension in the project's namespace that requests
	// approval of the project's deletion.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DeletionRequest string `json:"deletionRequest,omitempty"`

	// ExtensionRequests are the Extensions of the last day that people had to decide on, the oldest
	// first. Those that were withdrawn count, too. Of one requester it has at most ten, and of all
	// together 100; the contacts of the department get no mail of others.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=100
	ExtensionRequests []ExtensionRequest `json:"extensionRequests,omitempty"`

	// GPU is the project's GPU quota and usage, summed over all node pools.
	//
	// +optional
	GPU GPUUsage `json:"gpu,omitempty,omitzero"`

	// NodePools is the GPU quota and usage in each node pool.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	NodePools []PoolUsage `json:"nodePools,omitempty"`

	// PoolSummary shows the allocated GPUs and the limit of each node pool, such as "dgx 9/8, mig
	// 1/4", for display: a sum over all pools would hide that one of them exceeds its limit. The
	// pool closest to its limit is first. At most three pools are named; +2 means two more.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=300
	PoolSummary string `json:"poolSummary,omitempty"`

	// Workloads are the workloads that hold GPUs now: the ten with the most GPUs, the largest
	// first. A workload in two node pools is listed for each. The list changes at most every five
	// seconds.
	//
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Workloads []WorkloadUsage `json:"workloads,omitempty"`

	// MoreWorkloads is the number of workloads that hold GPUs and are not in the list.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MoreWorkloads int32 `json:"moreWorkloads,omitempty"`

	// Conditions are Ready, QuotaApplied, OtherQuotas, QueueApplied, MembersBound, Uncounted, Pending,
	// UsageDiffers, QuotaNearlyUsed, LimitExceeded, Held, Exempt, ExpiryBlocked and Unsupported.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
