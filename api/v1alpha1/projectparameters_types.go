// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceType is a type of Service.
//
// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer;ExternalName
type ServiceType string

// IngressHost is a DNS name, an asterisk and a dot before a DNS name for all names below it, such as
// *.h2.example.org, or a lone asterisk for all hosts.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^(\*|(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$`
type IngressHost string

// ServiceTerms set how the workloads of a project can be reached from outside.
type ServiceTerms struct {
	// Types are the allowed types of Services. Default: ClusterIP only. Services with external
	// IPs are never allowed.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={ClusterIP}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Types []ServiceType `json:"types,omitempty"`

	// IngressHosts are the hosts that Ingresses and routes of the Gateway API can have. Default:
	// none. "*.h2.example.org" allows all names below h2.example.org, "*" allows all hosts.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	IngressHosts []IngressHost `json:"ingressHosts,omitempty"`
}

// EffectiveTimeLimits are the limits of a type of workload in a project: the tighter ones of the project and its
// department.
type EffectiveTimeLimits struct {
	// MaxRuntimeSeconds is the longest running time. 0 means that there is no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRuntimeSeconds int64 `json:"maxRuntimeSeconds"`

	// IdleTimeoutSeconds is the longest idle time of the GPUs. 0 means that there is no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	IdleTimeoutSeconds int64 `json:"idleTimeoutSeconds"`
}

// ProjectParametersName is the name of the ProjectParameters that each project's namespace has.
const ProjectParametersName = "sluice"

// ProjectParametersSpec has the terms that admission policies and members read in a project's namespace.
type ProjectParametersSpec struct {
	// Services are the terms of the project's department.
	//
	// +optional
	Services ServiceTerms `json:"services,omitempty,omitzero"`

	// TimeLimits are the effective limits of each type of workload. Members may not read the Department.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	TimeLimits map[WorkloadType]EffectiveTimeLimits `json:"timeLimits,omitempty"`

	// Images are the images that a policy allows, for people, such as registry.example.org or nvcr.io/nvidia for all
	// images below them. The policy that renders the object decides. Default: the policy tells none.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	Images []string `json:"images,omitempty"`
}

// ProjectParameters is the parameter object of the admission policies that depend on the project. The
// lifecycle controller renders one, named sluice, into the namespace of each project, from the project
// and its department. Other users cannot change it. Without it the API server rejects what the policies cover.
// Policies render further ones, of other names, that tell members which images they allow.
//
// +kubebuilder:object:root=true
// +kubebuilder:ac:generate=false
// +kubebuilder:resource:scope=Namespaced,path=projectparameters,shortName=slparam,categories=sluice
// +kubebuilder:printcolumn:name="Service types",type=string,JSONPath=`.spec.services.types`
// +kubebuilder:printcolumn:name="Ingress hosts",type=string,JSONPath=`.spec.services.ingressHosts`
// +kubebuilder:printcolumn:name="Images",type=string,JSONPath=`.spec.images`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'sluice' || !has(self.spec.services) && !has(self.spec.timeLimits)",message="must be named sluice, unless it has only images: a namespace has one object with services and time limits"
type ProjectParameters struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the terms.
	//
	// +required
	Spec ProjectParametersSpec `json:"spec"`
}

// ProjectParametersList is a list of ProjectParameters.
//
// +kubebuilder:object:root=true
type ProjectParametersList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProjectParameters `json:"items"`
}
