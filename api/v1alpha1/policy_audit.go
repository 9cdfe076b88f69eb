// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyAudit is what an audit found with a policy among the objects that exist. The status of the
// AdmissionParameters has the time of the last audit.
type PolicyAudit struct {
	// Generation is the generation of the policy that was evaluated.
	//
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// ChangedAt is the time of the audit that first found these figures. Later audits that find
	// the same write nothing.
	//
	// +required
	ChangedAt metav1.Time `json:"changedAt"`

	// Violations is the number of objects that the policy would refuse if they were created now, or
	// that lack what it sets. The pods of a workload count as one object.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Violations int64 `json:"violations"`

	// Failed is the number of objects on which the policy could not be evaluated.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int64 `json:"failed,omitempty"`

	// ViolationsByProject are the 20 projects with the most violations, the largest number first.
	//
	// +optional
	// +listType=map
	// +listMapKey=project
	// +kubebuilder:validation:MaxItems=20
	ViolationsByProject []ProjectViolations `json:"violationsByProject,omitempty"`

	// Examples are violations, those of several projects rather than many of one.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	Examples []AuditExample `json:"examples,omitempty"`
}

// AuditExample is an object that violates a policy. It has names, and the message of the policy, but
// no values of the object.
type AuditExample struct {
	// Project is the name of the project.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Project string `json:"project"`

	// Kind is the kind of the object, such as Pod or Deployment.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Namespace is the namespace of the object.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// Name is the name of the object.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Result is Denied or Changed: the policy would refuse the object, or the object lacks what the
	// policy sets.
	//
	// +required
	// +kubebuilder:validation:Enum=Denied;Changed
	Result string `json:"result"`

	// Pods is the number of the object's pods that violate the policy.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pods int64 `json:"pods,omitempty"`

	// Message is the first reason of the policy, shortened.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// AuditRecord describes the last complete audit of the objects that exist.
type AuditRecord struct {
	// Time is when it started, in policy time.
	//
	// +required
	Time metav1.Time `json:"time"`

	// DurationSeconds is how long it took, in machine time.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	DurationSeconds int64 `json:"durationSeconds,omitempty"`

	// Policies is the digest of the policies that were in force.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Policies string `json:"policies,omitempty"`

	// Evaluated is the number of objects that were evaluated.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Evaluated int64 `json:"evaluated"`

	// Unevaluated is the number of objects that could not be evaluated: their project is incomplete,
	// or there was no time.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unevaluated int64 `json:"unevaluated,omitempty"`

	// Violations is the number of violations of all policies.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Violations int64 `json:"violations"`

	// Reports is where the violations are written: Report objects of OpenReports, or only the
	// status of the policies because that kind is not installed.
	//
	// +optional
	// +kubebuilder:validation:Enum=OpenReports;StatusOnly
	Reports AuditReports `json:"reports,omitempty"`
}

// AuditReports is where the violations of an audit are written.
type AuditReports string

// The places.
const (
	// AuditReportsOpenReports: the status of the policies, and one Report object for each namespace.
	AuditReportsOpenReports AuditReports = "OpenReports"
	// AuditReportsStatusOnly: the status of the policies.
	AuditReportsStatusOnly AuditReports = "StatusOnly"
)
