// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
)

// ExtensionAction is the requested action.
//
// +kubebuilder:validation:Enum=Extend;Renew;Delete
type ExtensionAction string

// The actions.
const (
	// ActionExtend gives a workload more time.
	ActionExtend ExtensionAction = "Extend"
	// ActionRenew gives a project another period of validity.
	ActionRenew ExtensionAction = "Renew"
	// ActionDelete deletes a project once an approver has approved it. The lifecycle
	// controller creates these Extensions.
	ActionDelete ExtensionAction = "Delete"
)

// ExtensionTarget names the object that the request is about.
type ExtensionTarget struct {
	// APIVersion is the object's group and version: that of a workload, such as batch/v1, or
	// sluice.dev/v1alpha1 for a Project.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// Kind is the object's kind, such as Job or Project.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Name is the name of a workload in the Extension's namespace, or of the project to which
	// that namespace belongs.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ExtensionSpec is the request. It cannot be changed.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; create another Extension"
// +kubebuilder:validation:XValidation:rule="self.action != 'Extend' || has(self.by)",fieldPath=".by",message="is required for the action Extend: how much more time, such as 24h"
// +kubebuilder:validation:XValidation:rule="self.action == 'Extend' || !has(self.by)",fieldPath=".by",messageExpression="'is for the action Extend only; it is ' + self.action + ' here'"
// +kubebuilder:validation:XValidation:rule="self.action == 'Renew' || !has(self.onBehalfOf)",fieldPath=".onBehalfOf",messageExpression="'is for the action Renew only; it is ' + self.action + ' here'"
// +kubebuilder:validation:XValidation:rule="(self.action == 'Extend') != (self.target.kind == 'Project' && self.target.apiVersion.startsWith('sluice.dev/'))",fieldPath=".target",message="must be a workload for the action Extend, and a Project of sluice.dev/v1alpha1 for Renew and Delete"
type ExtensionSpec struct {
	// Target is the object that the request is about.
	//
	// +required
	Target ExtensionTarget `json:"target"`

	// Action is Extend for a workload, and Renew or Delete for a project.
	//
	// +required
	Action ExtensionAction `json:"action"`

	// By is the time to add to the workload's limit, such as 24h. It is required for Extend
	// and must be left out otherwise.
	//
	// +optional
	By *period.Duration `json:"by,omitempty"`

	// OnBehalfOf is the address of the project's owner for whom an administrator of the department
	// requests a renewal. It is required from administrators who are no owners, and must be left
	// out otherwise.
	//
	// +optional
	OnBehalfOf EmailAddress `json:"onBehalfOf,omitempty"`

	// Reason explains the request to the approver, in one sentence.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=500
	// +kubebuilder:validation:Pattern=`\S`
	Reason string `json:"reason"`
}

// ExtensionDecision is the decision on an Extension.
//
// +kubebuilder:validation:Enum=Approved;Denied
type ExtensionDecision string

// The decisions.
const (
	ExtensionApproved ExtensionDecision = "Approved"
	ExtensionDenied   ExtensionDecision = "Denied"
)

// ExtensionStatus is the decision on an Extension and its result.
type ExtensionStatus struct {
	// Decision is Approved or Denied. It is absent until an approver has decided.
	//
	// +optional
	Decision ExtensionDecision `json:"decision,omitempty"`

	// DecidedBy is the name of the user who decided. Admission sets it. It is empty if the
	// extension was granted by self-service.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	DecidedBy string `json:"decidedBy,omitempty"`

	// DecidedAt is when the decision was made.
	//
	// +optional
	DecidedAt *metav1.Time `json:"decidedAt,omitempty"`

	// Message is the approver's comment.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=500
	Message string `json:"message,omitempty"`

	// Until is the last day, in the department's time zone, for which a denied deletion is not requested
	// again. The administrator of the department sets it, at most five years ahead. It is required if
	// the project was suspended, and must be left out if its owners did not confirm it: such a project
	// is Active until its next anniversary.
	//
	// +optional
	Until *period.Date `json:"until,omitempty"`

	// NewEnd is the end of the workload or of the project's validity after the extension was
	// applied.
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

// Extension requests more time for a workload, the renewal of a project, or approval of its
// deletion.
//
// +kubebuilder:object:root=true
// +kubebuilder:ac:generate=false
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=slext,categories=sluice
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.decision) || (has(self.status) && has(self.status.decision) && self.status.decision == oldSelf.status.decision)",fieldPath=".status.decision",message="cannot be changed: a decision stands"
// +kubebuilder:validation:XValidation:rule="!has(self.status) || !has(self.status.until) || self.spec.action == 'Delete' && has(self.status.decision) && self.status.decision == 'Denied'",fieldPath=".status.until",message="is for a denied Extension with the action Delete only: the last day for which the deletion is not requested again"
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

	// Spec is the request.
	//
	// +required
	Spec ExtensionSpec `json:"spec"`

	// Status is the decision and its result.
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

// IsPending reports whether the Extension has no decision, or was approved and is neither applied
// nor found to have no effect.
func (e *Extension) IsPending() bool {
	switch applied := meta.FindStatusCondition(e.Status.Conditions, ConditionApplied); e.Status.Decision {
	case ExtensionApproved:
		return applied == nil || applied.Reason == ReasonAwaitingDecision
	default:
		return e.Status.Decision == ""
	}
}

// Approvers returns the roles whose holders decide on an Extension with that action. Administrators
// of the department alone decide on deletions.
func (d *Department) Approvers(action ExtensionAction) (approvers []ApproverRole) {
	switch action {
	case ActionExtend:
		approvers = d.Spec.Extensions.Approvers
	case ActionRenew:
		approvers = d.Spec.Projects.Renewals.Approvers
	case ActionDelete:
	}
	if len(approvers) == 0 {
		return []ApproverRole{ApproverRole(RoleDepartmentAdministrator)} // the default of the schema
	}
	return approvers
}
