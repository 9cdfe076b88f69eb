// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenancy decides which namespace a project may have, and compares the guarantees
// of a department with those of its projects.
//
// Admission and the lifecycle controller use the same functions, so that both give the
// same result with the same message. The package does not read or write the cluster.
package tenancy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// Claim is the way in which a project gets its namespace.
type Claim string

// The claims that a project may have.
const (
	// ClaimCreate means that the namespace does not exist yet.
	ClaimCreate Claim = "Create"
	// ClaimCreated means that Sluice created the namespace for this project.
	ClaimCreated Claim = "Created"
	// ClaimAdopt means that the namespace exists and is annotated for this project by a user
	// who may update it.
	ClaimAdopt Claim = "Adopt"
	// ClaimAdopted means that the project has adopted the namespace.
	ClaimAdopted Claim = "Adopted"
)

// Origin returns the origin that the project's status records for this claim.
func (c Claim) Origin() v1alpha1.NamespaceOrigin {
	if c == ClaimCreate || c == ClaimCreated {
		return v1alpha1.NamespaceCreated
	}
	return v1alpha1.NamespaceAdopted
}

// MembersSince returns the time from which what is created in the project's namespace can be its members'. All that a
// namespace contains can be, which Sluice created for the project. In an adopted one it is the second after the project's
// creation: the API server's times have seconds, members get rights only after the project was created, and what an
// administrator creates with it in one command is older than its members' work.
func MembersSince(project *v1alpha1.Project) metav1.Time {
	if namespace := project.Status.Namespace; namespace != nil && namespace.Origin == v1alpha1.NamespaceCreated {
		return project.CreationTimestamp
	}
	return metav1.NewTime(project.CreationTimestamp.Add(time.Second))
}

// DecideClaim decides the project's claim on its namespace. namespace is nil if it does not
// exist. A ClaimError means that the project may not have it, or not yet.
//
// A namespace becomes the project's only if Sluice created it or a user with the right to update
// it annotated it. A project label alone is no proof.
func DecideClaim(project *v1alpha1.Project, namespace *corev1.Namespace) (Claim, *ClaimError) {
	name := project.NamespaceName()
	if IsSystemNamespace(name) {
		return "", newClaimError(ReasonSystemNamespace,
			"namespace %s belongs to the system and cannot be a project's; choose another name", name)
	}
	if namespace == nil {
		return ClaimCreate, nil
	}
	claim, claimErr := DecideExistingClaim(project, namespace)
	if claimErr == nil && namespace.DeletionTimestamp != nil {
		return "", newClaimError(ReasonNamespaceTerminating,
			"namespace %s is being deleted; wait until it is gone", name)
	}
	return claim, claimErr
}

// DecideExistingClaim decides the claim on an existing namespace, without checking its name or
// whether it is being deleted.
func DecideExistingClaim(project *v1alpha1.Project, namespace *corev1.Namespace) (Claim, *ClaimError) {
	if recorded := project.Status.Namespace; recorded != nil && recorded.UID == namespace.UID {
		if recorded.Origin == v1alpha1.NamespaceCreated {
			return ClaimCreated, nil
		}
		return ClaimAdopted, nil
	}
	// The annotation is written in the request that creates the namespace, so that it survives a
	// crash before the status is written.
	if project.UID != "" && namespace.Annotations[v1alpha1.AnnotationCreatedFor] == string(project.UID) {
		return ClaimCreated, nil
	}
	if other := namespace.Labels[v1alpha1.LabelProject]; other != "" && other != project.Name {
		return "", newClaimError(ReasonNamespaceTaken,
			"namespace %s carries the label %s=%s; one namespace has one project: set spec.namespace to another, or remove the label if it is wrong",
			namespace.Name, v1alpha1.LabelProject, other)
	}
	switch adoptBy := namespace.Annotations[v1alpha1.AnnotationAdoptBy]; adoptBy {
	case project.Name:
		return ClaimAdopt, nil
	case "":
		return "", newClaimError(ReasonNotAdoptable,
			"namespace %s exists already; a user who may update it can hand it over with: kubectl annotate namespace %s %s=%s",
			namespace.Name, namespace.Name, v1alpha1.AnnotationAdoptBy, project.Name)
	default:
		return "", newClaimError(ReasonNotAdoptable,
			"namespace %s is marked for project %s by its annotation %s, not for %s",
			namespace.Name, adoptBy, v1alpha1.AnnotationAdoptBy, project.Name)
	}
}

// The reasons of a ClaimError, as they appear in conditions.
const (
	ReasonSystemNamespace      = "SystemNamespace"
	ReasonNamespaceTaken       = "NamespaceTaken"
	ReasonNamespaceTerminating = "NamespaceTerminating"
	ReasonNotAdoptable         = "NamespaceNotAdoptable"
)

// ClaimError explains why a project may not have a namespace, and what to do.
type ClaimError struct {
	// Reason is one of the reasons above.
	Reason string
	// Message is for the user who writes the project.
	Message string
}

// Error implements error.
func (r *ClaimError) Error() string { return r.Message }

// NewNamespaceTakenError returns the error for a namespace that another Project names. The
// namespace itself does not show this while neither project has it.
func NewNamespaceTakenError(namespace, by string) *ClaimError {
	return newClaimError(ReasonNamespaceTaken,
		"namespace %s is named by project %s already; one namespace has one project: set spec.namespace to another", namespace, by)
}

func newClaimError(reason, format string, args ...any) *ClaimError {
	return &ClaimError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// systemNamespaces are the namespaces of the supported schedulers and operators, and Sluice's
// own.
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
	v1alpha1.AgentNamespace:    true,
	v1alpha1.SystemNamespace:   true,
	"volcano-system":           true,
	"yunikorn":                 true,
}

// operatorNamespaces are the namespaces of the operators that create pods.
var operatorNamespaces = workloadkind.OperatorNamespaces()

// ExemptNamespaces returns the namespaces, sorted, in which pods may request GPUs without a
// project: those of Kubernetes, the schedulers and the operators. The namespace default is not
// exempt.
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

// ReservedNamespaces returns the namespaces, by name, that the cluster's settings trust, and why: those that may reach
// the pods of projects (ingress), and those of the identities and exemptions of the admission policies. A project of that name
// would be trusted, too.
func ReservedNamespaces(ingress []string, parameters *v1alpha1.AdmissionParametersSpec) map[string]string {
	reserved := map[string]string{}
	for _, users := range [][]v1alpha1.UserPattern{parameters.Binders, parameters.Controllers, parameters.Queues, parameters.Managers} {
		for _, user := range users {
			if account, ok := strings.CutPrefix(string(user), "system:serviceaccount:"); ok {
				name, _, _ := strings.Cut(account, ":")
				reserved[name] = "the admission policies trust its service accounts (AdmissionParameters)"
			}
		}
	}
	for _, name := range parameters.ExemptNamespaces {
		reserved[name] = "it may run GPU pods without a project (AdmissionParameters, exemptNamespaces)"
	}
	for _, name := range ingress {
		reserved[name] = "it may reach the pods of all projects (Policy core.namespace, ingressNamespaces)"
	}
	return reserved
}

// IsSystemNamespace reports whether a namespace can never be a project's: default, kube-* (which
// Kubernetes reserves), openshift-*, and those of schedulers, operators and Sluice. Admission
// policies trust the ServiceAccounts there.
func IsSystemNamespace(name string) bool {
	return systemNamespaces[name] ||
		slices.Contains(operatorNamespaces, name) ||
		strings.HasPrefix(name, "kube-") ||
		strings.HasPrefix(name, "openshift-")
}
