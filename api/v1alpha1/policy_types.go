// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Enforcement sets how the results of a policy are enforced.
//
// +kubebuilder:validation:Enum=Deny;Warn;DryRun
type Enforcement string

// The ways of enforcing a policy.
const (
	// EnforcementDeny rejects the objects that the policy denies and applies its changes.
	EnforcementDeny Enforcement = "Deny"
	// EnforcementWarn turns denials into warnings.
	EnforcementWarn Enforcement = "Warn"
	// EnforcementDryRun only counts and records the results.
	EnforcementDryRun Enforcement = "DryRun"
)

// PolicyOperation is an operation of the API server on an object.
//
// +kubebuilder:validation:Enum=CREATE;UPDATE
type PolicyOperation string

// The operations for which policies are evaluated.
const (
	OperationCreate PolicyOperation = "CREATE"
	OperationUpdate PolicyOperation = "UPDATE"
)

// PolicySpec is the source of a policy and where it applies.
type PolicySpec struct {
	// Enforcement sets how results are enforced. Deny (the default) rejects objects, Warn
	// only returns warnings, DryRun only counts and records.
	//
	// +optional
	// +kubebuilder:default=Deny
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// Match selects the objects for which the policy is evaluated. An empty match selects
	// every pod in governed namespaces.
	//
	// +optional
	Match PolicyMatch `json:"match,omitempty,omitzero"`

	// Parameters is an object of any form that the policy reads as input.parameters.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *apiextensionsv1.JSON `json:"parameters,omitempty"`

	// ParametersSchema is an OpenAPI v3 schema of parameters, as in a CustomResourceDefinition,
	// of at most 16 KiB. Parameters that it does not list are refused. Default: any
	// parameters.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	ParametersSchema *apiextensionsv1.JSON `json:"parametersSchema,omitempty"`

	// Replaces is the name of the built-in policy that this policy replaces, such as
	// core.gpu. core.project and core.quota cannot be replaced.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^core[.][a-z0-9]([-a-z0-9]*[a-z0-9])?$') && !(self in ['core.project', 'core.quota'])",message="must be the name of a built-in policy, such as core.gpu; core.project and core.quota cannot be replaced"
	Replaces string `json:"replaces,omitempty"`

	// Rego is the policy's source: one Rego v1 module of at most 256 KiB.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Rego string `json:"rego"`
}

// PolicyMatch selects objects that match all lists. An empty list matches every object, except for
// kinds.
type PolicyMatch struct {
	// Departments are names of departments.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Departments []string `json:"departments,omitempty"`

	// Projects are names of projects.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Projects []string `json:"projects,omitempty"`

	// Kinds are kinds of objects, without their group, such as Pod, or with it, such as
	// Job.batch. An empty list matches pods. The webhook refuses other kinds than Pod and
	// Job.batch: other workloads are evaluated as the pods that they create.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^[A-Z][A-Za-z0-9]*(\.[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	Kinds []string `json:"kinds,omitempty"`

	// Operations are the operations for which the policy is evaluated. An empty list matches
	// all. The webhook refuses UPDATE, since policies are evaluated for new objects only.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Operations []PolicyOperation `json:"operations,omitempty"`
}

// PolicyStatus is the result of compiling and auditing a policy.
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
	// enforcement Warn and DryRun, would have refused. It starts at 0 with each generation. The
	// replicas of the webhook count, and report about every 10 seconds; a replica that is
	// killed loses what it counted since. Requests with dryRun do not count, nor do templates
	// that are not refused, since their pods count.
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

	// EndedReplicas are the violations that replicas of the webhook counted that no longer
	// exist. They are part of violations.
	//
	// +optional
	EndedReplicas *EndedReplicas `json:"endedReplicas,omitempty"`

	// Conditions are Compiled, Ready, Enforced and, while the policy is quarantined, Quarantined.
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

// EndedReplicas are the violations that former replicas of the webhook counted.
type EndedReplicas struct {
	// Replicas are the Leases of the replicas that are included and not deleted yet.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Replicas []string `json:"replicas,omitempty"`

	// Violations is the sum of their violations.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Violations int64 `json:"violations"`

	// Projects are the 64 projects with the most violations, the largest number first.
	//
	// +optional
	// +listType=map
	// +listMapKey=project
	// +kubebuilder:validation:MaxItems=64
	Projects []ProjectViolations `json:"projects,omitempty"`
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

// Policy is an admission rule for workloads, written in Rego.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=slpol,categories=sluice,path=policies
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.enforcement`
// +kubebuilder:printcolumn:name="Compiled",type=string,JSONPath=`.status.conditions[?(@.type=="Compiled")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Violations",type=integer,JSONPath=`.status.violations`
// +kubebuilder:printcolumn:name="Replaces",type=string,JSONPath=`.spec.replaces`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Policy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the source of the policy and where it applies.
	//
	// +required
	Spec PolicySpec `json:"spec"`

	// Status is the result of compiling and auditing the policy.
	//
	// +optional
	Status PolicyStatus `json:"status,omitempty,omitzero"`
}

// PolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type PolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Policy `json:"items"`
}
