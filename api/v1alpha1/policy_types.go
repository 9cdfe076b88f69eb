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

// PolicyType is what the module of a Policy is.
//
// +kubebuilder:validation:Enum=Policy;Library
type PolicyType string

// The types of policies.
const (
	// PolicyTypePolicy is a policy that is evaluated for objects.
	PolicyTypePolicy PolicyType = "Policy"
	// PolicyTypeLibrary is a module that policies import.
	PolicyTypeLibrary PolicyType = "Library"
)

// PolicySpec is the source of a policy and where it applies.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'Library' || self.enforcement == 'Deny'",message="a library is not enforced: set the enforcement of the policies that import it",fieldPath=".enforcement"
// +kubebuilder:validation:XValidation:rule="self.type != 'Library' || !has(self.match)",message="a library matches no objects: set the match of the policies that import it",fieldPath=".match"
// +kubebuilder:validation:XValidation:rule="self.type != 'Library' || !has(self.parameters)",message="a library has no parameters: input.parameters are those of the policy that imports it",fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.type != 'Library' || !has(self.parametersSchema)",message="a library has no parameters: input.parameters are those of the policy that imports it",fieldPath=".parametersSchema"
// +kubebuilder:validation:XValidation:rule="self.type != 'Library' || !has(self.replaces)",message="a library replaces no policy",fieldPath=".replaces"
// +kubebuilder:validation:XValidation:rule="self.type != 'Library' || !has(self.exemptions)",message="a library denies nothing: set the exemptions of the policies that import it",fieldPath=".exemptions"
// +kubebuilder:validation:XValidation:rule="!has(self.replaces) || !has(self.exemptions)",message="a policy that replaces a built-in one has no exemptions: allow the objects in its rules",fieldPath=".exemptions"
type PolicySpec struct {
	// Type is Policy (the default), or Library for a module that policies import. The package
	// of a library is below lib, such as lib.registries, and policies read it as
	// data.lib.registries. A library has only the fields type and rego.
	//
	// +optional
	// +kubebuilder:default=Policy
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another object"
	Type PolicyType `json:"type,omitempty"`

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

	// Exemptions admit objects that the policy denies, until an end. A policy that replaces a
	// built-in one has none.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Exemptions []PolicyExemption `json:"exemptions,omitempty"`

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

	// Exclude are departments and projects for which the policy is not evaluated, although the
	// other lists select them.
	//
	// +optional
	Exclude PolicyExclusion `json:"exclude,omitempty,omitzero"`
}

// PolicyExclusion selects the objects of these departments and of these projects.
type PolicyExclusion struct {
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
}

// PolicyExemption admits objects that a policy denies. The policy is evaluated nevertheless: it
// changes the objects, and its denials are warnings.
type PolicyExemption struct {
	// Projects are the names of the projects whose objects are exempted.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Projects []string `json:"projects"`

	// Names limit the exemption to objects with these names, in which * stands for any
	// characters. The pods of a controller have the name of the controller before theirs: use
	// train-*. Users choose these names. An empty list exempts all objects of the projects.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[-a-z0-9.*]+$`
	Names []string `json:"names,omitempty"`

	// Reason is shown to the users whose objects are exempted.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason"`

	// Until is the end of the exemption, in policy time, at most 366 days ahead. From then on
	// the policy denies such objects again.
	//
	// +required
	Until metav1.Time `json:"until"`
}

// Policy is an admission rule for workloads, written in Rego, or a library of such rules.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=slpol,categories=sluice,path=policies
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`,priority=1
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
