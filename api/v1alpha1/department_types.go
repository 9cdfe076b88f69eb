// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DepartmentSpec is what a department is given and what its projects must keep.
type DepartmentSpec struct {
	// DisplayName is the department's name for people to read.
	//
	// +optional
	DisplayName DisplayName `json:"displayName,omitempty"`

	// Contacts are told when nobody else can be.
	//
	// +optional
	// +listType=map
	// +listMapKey=email
	// +kubebuilder:validation:MaxItems=20
	Contacts []Contact `json:"contacts,omitempty"`

	// NodePools are the pools that the department may use, in order of preference,
	// and how many GPUs of each.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	NodePools []PoolQuota `json:"nodePools,omitempty"`

	// Oversubscription says whether the guarantees of the department's projects may
	// add up to more than its own, in a node pool; so too for CPU and memory. By
	// default that is refused, with the figures.
	//
	// +optional
	// +kubebuilder:default=Deny
	Oversubscription Oversubscription `json:"oversubscription,omitempty"`

	// Resources are how much CPU and memory the pods of all its projects may request
	// at once.
	//
	// +optional
	Resources ResourceQuota `json:"resources,omitempty,omitzero"`

	// PodSecurity is the level of the Pod Security Standards to which the namespaces
	// of its projects are held.
	//
	// +optional
	// +kubebuilder:default=baseline
	PodSecurity PodSecurity `json:"podSecurity,omitempty"`

	// Members have a role in all of the department's projects.
	//
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Members []Member `json:"members,omitempty"`

	// Workloads are the limits by type of workload: train, interactive, inference,
	// and "*" for what those leave open.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=4
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['*', 'train', 'interactive', 'inference'])",message="keys must be train, interactive, inference or *"
	Workloads map[WorkloadType]WorkloadLimits `json:"workloads,omitempty"`

	// Projects says how long the department's projects are valid and what happens
	// then. Without it they never end.
	//
	// +optional
	Projects ProjectTerms `json:"projects,omitempty,omitzero"`

	// Extensions says how workloads get more time.
	//
	// +optional
	// +kubebuilder:default={}
	Extensions ExtensionTerms `json:"extensions,omitempty,omitzero"`

	// Holidays are days on which nothing is suspended or deleted: a project's step
	// that would fall on one waits until they are over.
	//
	// +optional
	// +listType=map
	// +listMapKey=from
	// +kubebuilder:validation:MaxItems=50
	Holidays []Holiday `json:"holidays,omitempty"`

	// Notices says when and in which language people are told.
	//
	// +optional
	// +kubebuilder:default={}
	Notices NoticeTerms `json:"notices,omitempty,omitzero"`
}

// DepartmentStatus is what was found of a department.
type DepartmentStatus struct {
	// ObservedGeneration is the generation of the spec that this status speaks of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Projects is how many projects the department has.
	//
	// +optional
	Projects int32 `json:"projects,omitempty"`

	// GPU is the department's quota and use, over all node pools.
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

	// Conditions are Ready, QueueApplied, Oversubscribed and Unsupported.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Department is a part of an institution that shares GPUs among its projects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=sldept,categories=sluice
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 63 characters: lower-case letters, digits and hyphens"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Projects",type=integer,JSONPath=`.status.projects`
// +kubebuilder:printcolumn:name="Guaranteed",type=string,JSONPath=`.status.gpu.guaranteed`
// +kubebuilder:printcolumn:name="Limit",type=string,JSONPath=`.status.gpu.limit`
// +kubebuilder:printcolumn:name="Allocated",type=string,JSONPath=`.status.gpu.allocated`
// +kubebuilder:printcolumn:name="Over quota",type=string,JSONPath=`.status.gpu.overQuota`
// +kubebuilder:printcolumn:name="Pending",type=string,JSONPath=`.status.gpu.pending`
// +kubebuilder:printcolumn:name="Validity",type=string,JSONPath=`.spec.projects.validity`,priority=1
// +kubebuilder:printcolumn:name="Name",type=string,JSONPath=`.spec.displayName`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Department struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the department is given and what its projects must keep.
	//
	// +required
	Spec DepartmentSpec `json:"spec"`

	// Status is what was found.
	//
	// +optional
	Status DepartmentStatus `json:"status,omitempty"`
}

// DepartmentList is a list of departments.
//
// +kubebuilder:object:root=true
type DepartmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Department `json:"items"`
}
