// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"strings"

	"sluice.dev/api/v1alpha1"
)

// SubjectKind is a kind of object for which policies render others.
type SubjectKind string

// The subjects for which policies render objects.
const (
	SubjectProject    SubjectKind = "Project"
	SubjectDepartment SubjectKind = "Department"
	SubjectNodePool   SubjectKind = "NodePool"
)

// subjectKinds are all of them.
var subjectKinds = []SubjectKind{SubjectProject, SubjectDepartment, SubjectNodePool}

// subjectLabels are the labels that name the subject of a rendered object. An object
// has one of them.
var subjectLabels = map[SubjectKind]string{
	SubjectProject:    v1alpha1.LabelProject,
	SubjectDepartment: v1alpha1.LabelDepartment,
	SubjectNodePool:   v1alpha1.LabelNodePool,
}

// Label returns the label that names a subject of this kind on its rendered objects.
func (k SubjectKind) Label() string { return subjectLabels[k] }

// lowerName returns the kind in the form that names of objects have.
func (k SubjectKind) lowerName() string { return strings.ToLower(string(k)) }

// Target is the place of a subject's rendered objects.
type Target struct {
	// Kind and Name are the subject's.
	Kind SubjectKind
	Name string
	// Namespace is the project's; empty for other subjects, which have cluster-wide
	// objects alone.
	Namespace string
	// NewNamespace reports that the namespace was created for the project just now, so
	// that it has no objects of other people.
	NewNamespace bool
}

// ProjectTarget returns the target of what is rendered for a project.
func ProjectTarget(project *v1alpha1.Project) Target {
	return Target{Kind: SubjectProject, Name: project.Name, Namespace: project.NamespaceName()}
}

// ClusterTarget returns the target of the cluster-scoped objects of a subject.
func ClusterTarget(kind SubjectKind, name string) Target { return Target{Kind: kind, Name: name} }

// String names the subject in messages.
func (t Target) String() string {
	if t.Kind == SubjectNodePool {
		return "node pool " + t.Name
	}
	return t.Kind.lowerName() + " " + t.Name
}

// labels returns the labels on every object that is rendered for the subject.
func (t Target) labels() map[string]string {
	labels := ManagedLabels()
	labels[t.Kind.Label()] = t.Name
	return labels
}

// allowsName reports whether a cluster-scoped object of the subject may have the name:
// <name>, <name>.<suffix>, <kind>.<name> or <kind>.<name>.<suffix>, where the suffix has
// no dot. So two subjects never have the same name: their own names have no dots, and
// a name that begins with a kind and a dot is of that kind.
func (t Target) allowsName(name string) bool {
	parts := strings.Split(name, ".")
	if len(parts) > 1 && isSubjectKind(parts[0]) {
		if parts[0] != t.Kind.lowerName() {
			return false
		}
		parts = parts[1:]
	}
	return parts[0] == t.Name && (len(parts) == 1 || len(parts) == 2 && parts[1] != "")
}

// isSubjectKind reports whether the text is the name of a kind of subject.
func isSubjectKind(text string) bool {
	for kind := range subjectLabels {
		if kind.lowerName() == text {
			return true
		}
	}
	return false
}

// allowedNames lists the names that allowsName allows.
func (t Target) allowedNames() string {
	word := t.Kind.lowerName()
	return strings.Join([]string{t.Name, t.Name + ".<suffix>", word + "." + t.Name, word + "." + t.Name + ".<suffix>"}, ", ")
}
