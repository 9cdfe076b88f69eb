// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// Claim is how a project comes by its namespace.
type Claim string

// The claims that a project may have.
const (
	// Make: there is no such namespace yet.
	Make Claim = "Make"
	// Made: Sluice made the namespace for this very project.
	Made Claim = "Made"
	// Adopt: it exists, and somebody who may change it has marked it for this
	// project.
	Adopt Claim = "Adopt"
	// Adopted: it was adopted before.
	Adopted Claim = "Adopted"
)

// Origin is what the project's status says of a namespace claimed like this.
func (c Claim) Origin() v1alpha1.NamespaceOrigin {
	if c == Make || c == Made {
		return v1alpha1.NamespaceMade
	}
	return v1alpha1.NamespaceAdopted
}

// Of decides project's claim on the namespace that it names. The namespace is
// nil where none of that name exists. A non-nil Refusal means that the project
// may not have it, or not yet.
//
// Nothing that the namespace says makes it the project's unless somebody with
// the right to update it said so, or Sluice itself did: a project label alone
// proves nothing.
func Of(project *v1alpha1.Project, namespace *corev1.Namespace) (Claim, *Refusal) {
	name := project.NamespaceName()
	if IsSystem(name) {
		return "", refuse(ReasonSystemNamespace,
			"namespace %s belongs to the system and cannot be a project's; choose another name", name)
	}
	if namespace == nil {
		return Make, nil
	}
	claim, refusal := OfExisting(project, namespace)
	if refusal == nil && namespace.DeletionTimestamp != nil {
		return "", refuse(ReasonNamespaceTerminating,
			"namespace %s is being deleted; it can be had once it has gone", name)
	}
	return claim, refusal
}

// OfExisting is [Of] for a namespace that is there, whatever its name, and also
// while it is being deleted: whose it is, whether or not it can still be had.
func OfExisting(project *v1alpha1.Project, namespace *corev1.Namespace) (Claim, *Refusal) {
	if held := project.Status.Namespace; held != nil && held.UID == namespace.UID {
		if held.Origin == v1alpha1.NamespaceMade {
			return Made, nil
		}
		return Adopted, nil
	}
	// Written in the very call that made the namespace, so that a crash before
	// the status was written loses nothing.
	if project.UID != "" && namespace.Annotations[v1alpha1.AnnotationMadeFor] == string(project.UID) {
		return Made, nil
	}
	if other := namespace.Labels[v1alpha1.LabelProject]; other != "" && other != project.Name {
		return "", refuse(ReasonNamespaceTaken,
			"namespace %s carries the label %s=%s; one namespace has one project: set spec.namespace to another, or have the label removed if it is wrong", namespace.Name, v1alpha1.LabelProject, other)
	}
	switch consent := namespace.Annotations[v1alpha1.AnnotationAdoptBy]; consent {
	case project.Name:
		return Adopt, nil
	case "":
		return "", refuse(ReasonNotAdoptable,
			"namespace %s exists already; somebody who may update it can hand it over with: kubectl annotate namespace %s %s=%s",
			namespace.Name, namespace.Name, v1alpha1.AnnotationAdoptBy, project.Name)
	default:
		return "", refuse(ReasonNotAdoptable,
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

// Refusal says why a project may not have a namespace, and what to do.
type Refusal struct {
	// Reason is one of the reasons above.
	Reason string
	// Message is for the person who wrote the project.
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// Taken is the refusal of a namespace that another Project names, which is not
// visible from the namespace while neither of them has it.
func Taken(namespace, by string) *Refusal {
	return refuse(ReasonNamespaceTaken,
		"namespace %s is named by project %s already; one namespace has one project: set spec.namespace to another", namespace, by)
}

func refuse(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
