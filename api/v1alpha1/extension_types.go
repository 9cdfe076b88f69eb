// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
)

// ExtensionAction is what is asked for.
//
// +kubebuilder:validation:Enum=Extend;Renew;Delete
type ExtensionAction string

// The actions.
const (
	// ActionExtend gives a workload more time.
	ActionExtend ExtensionAction = "Extend"
	// ActionRenew gives a project another period of validity.
	ActionRenew ExtensionAction = "Renew"
	// ActionDelete approves the deletion of a project. Lifecycle makes these.
	ActionDelete ExtensionAction = "Delete"
)

// ExtensionTarget names the object for which something is asked.
type ExtensionTarget struct {
	// APIVersion is the object's group and version: batch/v1, or
	// sluice.dev/v1alpha1 for a Project.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// Kind is the object's kind: Job, or Project.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Name is the object's name: a workload in the Extension's namespace, or the
	// project to which that namespace belongs.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ExtensionSpec is what is asked for. It never changes: who wants something else
// asks again.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; make another Extension"
// +kubebuilder:validation:XValidation:rule="self.action != 'Extend' || has(self.by)",fieldPath=".by",message="is required for the action Extend: how much more time, such as 24h"
// +kubebuilder:validation:XValidation:rule="self.action == 'Extend' || !has(self.by)",fieldPath=".by",messageExpression="'is for the action Extend only; it is ' + self.action + ' here'"
// +kubebuilder:validation:XValidation:rule="(self.action == 'Extend') != (self.target.kind == 'Project' && self.target.apiVersion.startsWith('sluice.dev/'))",fieldPath=".target",message="must be a workload for the action Extend, and a Project of sluice.dev/v1alpha1 for Renew and Delete"
type ExtensionSpec struct {
	// Target is the object for which something is asked.
	//
	// +required
	Target ExtensionTarget `json:"target"`

	// Action is Extend (a workload), Renew or Delete (a project).
	//
	// +required
	Action ExtensionAction `json:"action"`

	// By is how much more time a workload shall have; for Extend only.
	//
	// +optional
	By *period.Duration `json:"by,omitempty"`

	// Reason is why, in a sentence that whoever decides reads.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=500
	// +kubebuilder:validation:Pattern=`\S`
	Reason string `json:"reason"`
}

// ExtensionDecision is the answer to an Extension.
//
// +kubebuilder:validation:Enum=Approved;Denied
type ExtensionDecision string

// The answers.
const (
	ExtensionApproved ExtensionDecision = "Approved"
	ExtensionDenied   ExtensionDecision = "Denied"
)

// ExtensionStatus is what became of an Extension.
type ExtensionStatus struct {
	// Decision is Approved or Refused; absent while nobody has decided.
	//
	// +optional
	Decision ExtensionDecision `json:"decision,omitempty"`

	// DecidedBy is the name of the user who decided, as admission wrote it, or
	// empty where the department's self-service did.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	DecidedBy string `json:"decidedBy,omitempty"`

	// DecidedAt is when.
	//
	// +optional
	DecidedAt *metav1.Time `json:"decidedAt,omitempty"`

	// Message is what whoever decided wants to say.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=500
	Message string `json:"message,omitempty"`

	// NewEnd is the end that holds since it was carried out.
	//
	// +optional
	NewEnd *metav1.Time `json:"newEnd,omitempty"`

	// Conditions are Applied and Announced.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Extension asks for more time, for a project's renewal, or for the approval of
// its deletion.
//
// +kubebuilder:object:root=true
// +kubebuilder:ac:generate=false
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=slext,categories=sluice
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.decision) || (has(self.status) && has(self.status.decision) && self.status.decision == oldSelf.status.decision)",fieldPath=".status.decision",message="cannot be changed: a decision stands"
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.action`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.target.kind`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target.name`
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=`.spec.by`
// +kubebuilder:printcolumn:name="Decision",type=string,JSONPath=`.status.decision`
// +kubebuilder:printcolumn:name="Decided by",type=string,JSONPath=`.status.decidedBy`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Extension struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	//
	// +required
	Spec ExtensionSpec `json:"spec"`

	// Status is what became of it.
	//
	// +optional
	Status ExtensionStatus `json:"status,omitempty,omitzero"`
}

// ExtensionList is a list of extensions.
//
// +kubebuilder:object:root=true
type ExtensionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Extension `json:"items"`
}
