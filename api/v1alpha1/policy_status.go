// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyStatus is the result of compiling and evaluating a policy.
type PolicyStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// EnforcedGeneration is the generation of the source in force: the last one that
	// compiled.
	//
	// +optional
	EnforcedGeneration int64 `json:"enforcedGeneration,omitempty"`

	// Errors are the compile errors of the source.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Errors []PolicyError `json:"errors,omitempty"`

	// Violations is the number of objects that the generation in force refused, or, with
	// enforcement Warn and DryRun, would have refused, today and on the six days before (UTC). The
	// replicas of the webhook count, and report once a minute; a replica that is killed loses what it
	// counted since. Requests with dryRun do not count, nor do templates that are not refused, since
	// their pods count.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Violations int64 `json:"violations"`

	// ViolationsByProject are the 20 projects with the most violations, the largest number first.
	//
	// +optional
	// +listType=map
	// +listMapKey=project
	// +kubebuilder:validation:MaxItems=20
	ViolationsByProject []ProjectViolations `json:"violationsByProject,omitempty"`

	// Examples are the latest violations, at most one for each object, and those of several
	// projects rather than many of one. For a policy in DryRun they include objects that it
	// would only have changed.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	Examples []PolicyExample `json:"examples,omitempty"`

	// Audit is what the last audit found among the objects that exist. It has no value before the
	// first audit of the policy.
	//
	// +optional
	Audit *PolicyAudit `json:"audit,omitempty"`

	// Conditions are Compiled, Ready, Enforced and, if evaluations of the last hour took too long,
	// TimedOut.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProjectViolations is the number of violations in a project.
type ProjectViolations struct {
	// Project is the name of the project.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Project string `json:"project"`

	// Violations is the number of violations.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Violations int64 `json:"violations"`
}

// PolicyExample is an object that violated a policy. It has names, and the message of the policy,
// but no values of the object.
type PolicyExample struct {
	// Time is when the object was evaluated.
	//
	// +required
	Time metav1.Time `json:"time"`

	// Project is the name of the project.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Project string `json:"project"`

	// Kind is the kind of the object, such as Pod or Job.
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

	// Name is the name of the object, or its generateName with a trailing "*".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// User is the user who sent the request: for the pods of a workload its controller.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	User string `json:"user,omitempty"`

	// Message is the first reason of the policy, shortened.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`

	// Changes are the fields that a policy in DryRun would have changed, without their values:
	// a value can be secret.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=128
	Changes []string `json:"changes,omitempty"`
}

// PolicyError is one compile error.
type PolicyError struct {
	// Line is the line of the error in the source, counted from 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Line int32 `json:"line,omitempty"`

	// Column is the column of the error in the line, counted from 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Column int32 `json:"column,omitempty"`

	// Message is the compiler's message.
	//
	// +required
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message"`
}
