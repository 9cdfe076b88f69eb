// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "strings"

// PolicyDataScope is which objects of a kind policies read.
//
// +kubebuilder:validation:Enum=Namespace;AllNamespaces;Cluster
type PolicyDataScope string

// The scopes of data for policies.
const (
	// PolicyDataNamespace: a policy sees the objects in the namespace of the request only.
	PolicyDataNamespace PolicyDataScope = "Namespace"
	// PolicyDataAllNamespaces: a policy sees the objects of all namespaces, of other projects too.
	PolicyDataAllNamespaces PolicyDataScope = "AllNamespaces"
	// PolicyDataCluster: the kind has no namespaces.
	PolicyDataCluster PolicyDataScope = "Cluster"
)

// PolicyDataKind is a kind of objects that policies read as data.objects.
//
// +kubebuilder:validation:XValidation:rule="!(self.kind == 'Secret' && self.apiVersion == 'v1')",message="policies never read Secrets"
type PolicyDataKind struct {
	// APIVersion is the group and version, such as storage.k8s.io/v1, or v1.
	//
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9.-]+/)?v[0-9]+[a-z0-9]*$`
	APIVersion string `json:"apiVersion"`

	// Kind is the kind, such as StorageClass.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Kind string `json:"kind"`

	// Scope is Namespace for the objects in the namespace of the request, AllNamespaces for those of
	// all projects, or Cluster for a kind without namespaces.
	//
	// +optional
	// +kubebuilder:default=Namespace
	Scope PolicyDataScope `json:"scope,omitempty"`

	// Fields are what policies see of an object beside the name, the namespace and the labels, such as
	// spec.storageClassName or data. Default: spec.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z][A-Za-z0-9]*([.][A-Za-z][A-Za-z0-9]*)*$`
	Fields []string `json:"fields,omitempty"`
}

// Group returns the API group; empty for the core group.
func (k *PolicyDataKind) Group() string {
	group, _, found := strings.Cut(k.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// IsSecret reports whether the kind is that of Secrets, which policies never read.
func (k *PolicyDataKind) IsSecret() bool { return k.Group() == "" && k.Kind == "Secret" }
