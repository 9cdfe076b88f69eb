// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenancy decides which namespace a project may have.
//
// Enters: a Project and the namespace of the name it wants, as it is now.
// Leaves: whether the namespace is to be made, is to be adopted or is the
// project's already, or a [Refusal] that says why not and what to do. Admission
// asks before a Project is stored, lifecycle before it touches the namespace,
// so both give the same answer in the same words.
//
// It never reads or writes the cluster.
package tenancy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// Claim is how a project comes by its namespace.
type Claim string

// The claims that a project may have.
const (
	// ClaimCreate: there is no such namespace yet.
	ClaimCreate Claim = "Create"
	// ClaimCreated: Sluice made the namespace for this very project.
	ClaimCreated Claim = "Created"
	// ClaimAdopt: it exists, and somebody who may change it has marked it for this
	// project.
	ClaimAdopt Claim = "Adopt"
	// ClaimAdopted: it was adopted before.
	ClaimAdopted Claim = "Adopted"
)

// Origin is what the project's status says of a namespace claimed like this.
func (c Claim) Origin() v1alpha1.NamespaceOrigin {
	if c == ClaimCreate || c == ClaimCreated {
		return v1alpha1.NamespaceCreated
	}
	return v1alpha1.NamespaceAdopted
}

// DecideClaim decides project's claim on the namespace that it names. The namespace is
// nil where none of that name exists. A non-nil Refusal means that the project
// may not have it, or not yet.
//
// Nothing that the namespace says makes it the project's unless somebody with
// the right to update it said so, or Sluice itself did: a project label alone
// proves nothing.
func DecideClaim(project *v1alpha1.Project, namespace *corev1.Namespace) (Claim, *ClaimError) {
	name := project.NamespaceName()
	if IsSystemNamespace(name) {
		return "", newClaimError(ReasonSystemNamespace,
			"namespace %s belongs to the system and cannot be a project's; choose another name", name)
	}
	if namespace == nil {
		return ClaimCreate, nil
	}
	claim, refusal := DecideExistingClaim(project, namespace)
	if refusal == nil && namespace.DeletionTimestamp != nil {
		return "", newClaimError(ReasonNamespaceTerminating,
			"namespace %s is being deleted; it can be had once it has gone", name)
	}
	return claim, refusal
}

// DecideExistingClaim is [Of] for a namespace that is there, whatever its name, and also
// while it is being deleted: whose it is, whether or not it can still be had.
func DecideExistingClaim(project *v1alpha1.Project, namespace *corev1.Namespace) (Claim, *ClaimError) {
	if held := project.Status.Namespace; held != nil && held.UID == namespace.UID {
		if held.Origin == v1alpha1.NamespaceCreated {
			return ClaimCreated, nil
		}
		return ClaimAdopted, nil
	}
	// Written in the very call that made the namespace, so that a crash before
	// the status was written loses nothing.
	if project.UID != "" && namespace.Annotations[v1alpha1.AnnotationCreatedFor] == string(project.UID) {
		return ClaimCreated, nil
	}
	if other := namespace.Labels[v1alpha1.LabelProject]; other != "" && other != project.Name {
		return "", newClaimError(ReasonNamespaceTaken,
			"namespace %s carries the label %s=%s; one namespace has one project: set spec.namespace to another, or have the label removed if it is wrong", namespace.Name, v1alpha1.LabelProject, other)
	}
	switch consent := namespace.Annotations[v1alpha1.AnnotationAdoptBy]; consent {
	case project.Name:
		return ClaimAdopt, nil
	case "":
		return "", newClaimError(ReasonNotAdoptable,
			"namespace %s exists already; somebody who may update it can hand it over with: kubectl annotate namespace %s %s=%s",
			namespace.Name, namespace.Name, v1alpha1.AnnotationAdoptBy, project.Name)
	default:
		return "", newClaimError(ReasonNotAdoptable,
			"namespace %s is marked for project %s by its annotation %s, not for %s", namespace.Name, consent, v1alpha1.AnnotationAdoptBy, project.Name)
	}
}

// The reasons of refusals, as they appear in conditions.
const (
	ReasonSystemNamespace      = "SystemNamespace"
	ReasonNamespaceTaken       = "NamespaceTaken"
	ReasonNamespaceTerminating = "NamespaceTerminating"
	ReasonNotAdoptable         = "NamespaceNotAdoptable"
)

// ClaimError says why a project may not have a namespace, and what to do.
type ClaimError struct {
	// Reason is one of the reasons above.
	Reason string
	// Message is for the person who wrote the project.
	Message string
}

// Error implements error.
func (r *ClaimError) Error() string { return r.Message }

// NewNamespaceTakenError is the refusal of a namespace that another Project names, which is not
// visible from the namespace while neither of them has it.
func NewNamespaceTakenError(namespace, by string) *ClaimError {
	return newClaimError(ReasonNamespaceTaken,
		"namespace %s is named by project %s already; one namespace has one project: set spec.namespace to another", namespace, by)
}

func newClaimError(reason, format string, args ...any) *ClaimError {
	return &ClaimError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// systemNamespaces are those of the engines and operators that Sluice works
// with, and its own.
var systemNamespaces = map[string]bool{
	"default":                  true,
	"gpu-operator":             true,
	"hami-system":              true,
	"kai-resource-reservation": true,
	"kai-scale-adjust":         true,
	"kai-scheduler":            true,
	"koordinator-system":       true,
	"kueue-system":             true,
	"node-feature-discovery":   true,
	"nvidia-gpu-operator":      true,
	"sluice-system":            true,
	"volcano-system":           true,
	"yunikorn":                 true,
}

// ExemptNamespaces are those, by name, in which pods may ask for GPUs outside of
// projects: Kubernetes' own, the engines' and the operators'. Sorted. In
// namespace default they may not: it is nobody's.
func ExemptNamespaces() []string {
	names := []string{"kube-node-lease", "kube-system"}
	for name := range systemNamespaces {
		if name != "default" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// IsSystemNamespace tells whether the namespace of that name can never be a project's:
// default, kube-* (which Kubernetes reserves), openshift-*, and those of the
// engines, the operators and Sluice.
func IsSystemNamespace(name string) bool {
	return systemNamespaces[name] ||
		strings.HasPrefix(name, "kube-") ||
		strings.HasPrefix(name, "openshift-")
}
