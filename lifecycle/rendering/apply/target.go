// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"strings"

	"sluice.dev/api/v1alpha1"
)

// SubjectKind is for what policies render objects.
type SubjectKind string

// The subjects for which policies are asked.
const (
	SubjectProject    SubjectKind = "Project"
	SubjectDepartment SubjectKind = "Department"
	SubjectNodePool   SubjectKind = "NodePool"
)

// subjectLabels is the label that names a subject on what is rendered for it. An object
// has one of them.
var subjectLabels = map[SubjectKind]string{
	SubjectProject:    v1alpha1.LabelProject,
	SubjectDepartment: v1alpha1.LabelDepartment,
	SubjectNodePool:   v1alpha1.LabelNodePool,
}

// Label is the label that names a subject of this kind on what is rendered for it.
func (k SubjectKind) Label() string { return subjectLabels[k] }

// lowerName is the kind as people and names of objects say it.
func (k SubjectKind) lowerName() string { return strings.ToLower(string(k)) }

// Target is where a subject's objects are, and how they are marked.
type Target struct {
	// Kind and Name are the subject's.
	Kind SubjectKind
	Name string
	// Namespace is the project's; empty for other subjects, which have cluster-wide
	// objects alone.
	Namespace string
	// NewNamespace tells that the namespace was made for the project just now, so that
	// nothing of somebody else's is to be looked for in it.
	NewNamespace bool
}

// ProjectTarget is the project's.
func ProjectTarget(project *v1alpha1.Project) Target {
	return Target{Kind: SubjectProject, Name: project.Name, Namespace: project.NamespaceName()}
}

// ClusterTarget is the place of what is rendered outside of namespaces.
func ClusterTarget(kind SubjectKind, name string) Target { return Target{Kind: kind, Name: name} }

// String names the subject for people.
func (p Target) String() string {
	if p.Kind == SubjectNodePool {
		return "node pool " + p.Name
	}
	return p.Kind.lowerName() + " " + p.Name
}

// ManagedLabels are the labels on everything that lifecycle renders for any subject.
func ManagedLabels() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
}

// labels are those on everything that is rendered for the place's subject.
func (p Target) labels() map[string]string {
	labels := ManagedLabels()
	labels[p.Kind.Label()] = p.Name
	return labels
}

// allowsName tells whether a cluster-wide object of the place's subject may have the
// name: <name>, <name>.<suffix>, <kind>.<name> or <kind>.<name>.<suffix>, where the
// suffix has no dot. So two subjects never want the same name: their own names have
// no dots, and what begins with a kind's word and a dot is that kind's.
func (p Target) allowsName(name string) bool {
	parts := strings.Split(name, ".")
	if len(parts) > 1 && isSubjectKind(parts[0]) {
		if parts[0] != p.Kind.lowerName() {
			return false
		}
		parts = parts[1:]
	}
	return parts[0] == p.Name && (len(parts) == 1 || len(parts) == 2 && parts[1] != "")
}

// isSubjectKind tells whether it is the word of a kind of subject.
func isSubjectKind(text string) bool {
	for kind := range subjectLabels {
		if kind.lowerName() == text {
			return true
		}
	}
	return false
}

// allowedNames says for people which are allowed.
func (p Target) allowedNames() string {
	word := p.Kind.lowerName()
	return strings.Join([]string{p.Name, p.Name + ".<suffix>", word + "." + p.Name, word + "." + p.Name + ".<suffix>"}, ", ")
}
