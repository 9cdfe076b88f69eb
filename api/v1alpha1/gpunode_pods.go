// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodReference names a pod.
type PodReference struct {
	// UID is the pod's identity.
	//
	// +required
	UID types.UID `json:"uid"`

	// Namespace is the pod's namespace.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// Name is the pod's name.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PodUse is what one pod uses of a node's GPUs.
type PodUse struct {
	PodReference `json:",inline"`

	// Devices are the GPUs and MIG devices that the pod was given, by UUID.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Devices []string `json:"devices,omitempty"`

	// MemoryMiB is the GPU memory that it holds, in MiB.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// ShareMiB is the GPU memory that it may hold, in MiB.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ShareMiB int64 `json:"shareMiB,omitempty"`

	// LastActive is when one of its processes was last seen computing, in machine
	// time.
	//
	// +optional
	LastActive *metav1.Time `json:"lastActive,omitempty"`
}

// FindingReason says what is wrong with a pod's use of a GPU.
//
// +kubebuilder:validation:Enum=OverShare;NotAllocated
type FindingReason string

// The findings.
const (
	// FindingOverShare: the pod holds more memory than its share.
	FindingOverShare FindingReason = "OverShare"
	// FindingNotAllocated: the pod uses a GPU that it was not given.
	FindingNotAllocated FindingReason = "NotAllocated"
)

// Finding is a pod that uses what is not its own.
type Finding struct {
	// PodUID is the pod.
	//
	// +required
	PodUID types.UID `json:"podUID"`

	// Reason is what is wrong.
	//
	// +required
	Reason FindingReason `json:"reason"`

	// Since is when it was first seen, in machine time.
	//
	// +required
	Since metav1.Time `json:"since"`
}
