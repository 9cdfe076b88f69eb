// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
)

// ProjectSpec sets the department, the people and the GPU quota of a project.
//
// +kubebuilder:validation:XValidation:rule="has(self.__namespace__) == has(oldSelf.__namespace__) && (!has(self.__namespace__) || self.__namespace__ == oldSelf.__namespace__)",fieldPath=".namespace",message="cannot be added, changed or removed after creation"
type ProjectSpec struct {
	// Department is the name of the Department to which the project belongs. It may be
	// changed to move the project.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Department string `json:"department"`

	// Namespace is the namespace of the project. Default: the project's name. An existing
	// namespace is adopted if it carries the annotation sluice.dev/adopt-by with the
	// project's name. It cannot be changed.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// Owners are responsible for the project. They receive mail about its expiry and the end
	// of its workloads. At least one is required.
	//
	// +required
	// +listType=map
	// +listMapKey=email
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	Owners []Owner `json:"owners"`

	// Members are the users, groups and service accounts that have a role in the project.
	//
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Members []Member `json:"members,omitempty"`

	// NodePools are the node pools that the project may use, in order of preference, with the
	// GPU quota in each.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	NodePools []PoolQuota `json:"nodePools,omitempty"`

	// Resources limits the CPU and memory that the project's pods may request at the same
	// time, with and without GPUs. It is required for each resource that the department
	// limits. Default of each: what the pods with GPUs may request while they use the limits of
	// all node pools (see resourceShares of the NodePool), and an allowance for pods without GPUs,
	// 50 CPUs and 125Gi. There is none where a node pool has a factor Unlimited.
	//
	// +optional
	Resources ResourceQuota `json:"resources,omitempty,omitzero"`

	// Objects limits the number of objects in the project's namespace. It may tighten the
	// limits of the department, never loosen them. Default: the department's limits.
	//
	// +optional
	Objects ObjectLimits `json:"objects,omitempty"`

	// PodSecurity is the level of the Pod Security Standards that the project's namespace
	// enforces. It may be stricter than the department's, never looser. Default: the
	// department's level.
	//
	// +optional
	PodSecurity PodSecurity `json:"podSecurity,omitempty"`

	// Workloads sets limits for each type of workload: train, interactive and inference. The
	// key "*" sets the limits that a type leaves out. A limit may be tighter than the
	// department's, never looser.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=4
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['*', 'train', 'interactive', 'inference'])",message="keys must be train, interactive, inference or *"
	Workloads map[WorkloadType]WorkloadLimits `json:"workloads,omitempty"`

	// ValidFrom is the first day of the project's validity. All periods of validity, including
	// renewals, are counted from it. Default: the day on which the project was created.
	//
	// +optional
	ValidFrom *period.Date `json:"validFrom,omitempty"`

	// Hold keeps the project in its current phase of expiry and keeps its workloads from
	// being stopped.
	//
	// +optional
	Hold *Exception `json:"hold,omitempty"`

	// Exempt excludes the project from expiry and its workloads from all time limits.
	//
	// +optional
	Exempt *Exception `json:"exempt,omitempty"`
}

// Exception exempts a project from the rules of its department. Only administrators of the
// department may write one. The annotations sluice.dev/held-by and sluice.dev/exempted-by name the
// user who did.
type Exception struct {
	// Reason explains the exception to owners and auditors, in one sentence.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=500
	// +kubebuilder:validation:Pattern=`\S`
	Reason string `json:"reason"`

	// Until is the last day of the exception, in the department's time zone. Without it the
	// exception applies until it is removed. A project whose hold ends gets all warnings of its
	// next step again.
	//
	// +optional
	Until *period.Date `json:"until,omitempty"`
}

// IsInForce reports whether an exception applies at a time, in the department's time zone. A nil one never does.
func (e *Exception) IsInForce(now time.Time, zone *time.Location) bool {
	return e != nil && (e.Until == nil || now.Before(e.Until.End(zone)))
}

// Project is a group of people with a namespace and a GPU quota.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=slproj,categories=sluice
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 63 characters: lower-case letters, digits and hyphens"
// +kubebuilder:validation:XValidation:rule="has(self.spec.__namespace__) || !(self.metadata.name in ['default', 'sluice-agent', 'sluice-system'] || self.metadata.name.startsWith('kube-'))",message="metadata.name is also the name of the project's namespace, and default, sluice-agent, sluice-system and kube-* belong to the system: choose another, or set spec.namespace"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.__namespace__) || !(self.spec.__namespace__ in ['default', 'sluice-agent', 'sluice-system'] || self.spec.__namespace__.startsWith('kube-'))",fieldPath=".spec.namespace",message="must not be a namespace of the system: default, sluice-agent, sluice-system and kube-* cannot be a project's"
// +kubebuilder:printcolumn:name="Department",type=string,JSONPath=`.spec.department`
// +kubebuilder:printcolumn:name="Quota",type=string,JSONPath=`.status.gpu.guaranteed`
// +kubebuilder:printcolumn:name="Allocated of limit",type=string,JSONPath=`.status.poolSummary`
// +kubebuilder:printcolumn:name="Over quota",type=string,JSONPath=`.status.gpu.overQuota`
// +kubebuilder:printcolumn:name="Pending",type=string,JSONPath=`.status.gpu.pending`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expiresAt`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.status.namespace.name`,priority=1
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.next.phase`,priority=1
// +kubebuilder:printcolumn:name="Next at",type=string,JSONPath=`.status.next.at`,priority=1
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.owners[0].email`,priority=1
type Project struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec sets the department, the people and the GPU quota of the project.
	//
	// +required
	Spec ProjectSpec `json:"spec"`

	// Status is the observed state of the project.
	//
	// +optional
	Status ProjectStatus `json:"status,omitempty"`
}

// ProjectList is a list of projects.
//
// +kubebuilder:object:root=true
type ProjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Project `json:"items"`
}

// NamespaceName returns the name of the project's namespace: spec.namespace, or the project's own
// name.
func (p *Project) NamespaceName() string {
	if p.Spec.Namespace != "" {
		return p.Spec.Namespace
	}
	return p.Name
}

// IsClosed reports whether the project accepts no new pods with GPUs: it has expired, or is being
// deleted.
func (p *Project) IsClosed() bool {
	return p.Status.ClosedAt != nil || !p.DeletionTimestamp.IsZero()
}

// HasOwner reports whether the user is an owner of the project.
func (p *Project) HasOwner(user string) bool {
	return user != "" && slices.ContainsFunc(p.Spec.Owners, func(o Owner) bool { return o.User == user })
}

// HasOwnerAddress reports whether an owner of the project has the address.
func (p *Project) HasOwnerAddress(address EmailAddress) bool {
	return address != "" && slices.ContainsFunc(p.Spec.Owners, func(o Owner) bool {
		return strings.EqualFold(string(o.Email), string(address))
	})
}
