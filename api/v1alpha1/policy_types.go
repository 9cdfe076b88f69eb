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

	// Status is the result of compiling and evaluating the policy.
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
