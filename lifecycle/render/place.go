// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"

	"sluice.dev/api/v1alpha1"
)

// SubjectKind is for what policies render objects.
type SubjectKind string

// The subjects for which policies are asked.
const (
	ForProject    SubjectKind = "Project"
	ForDepartment SubjectKind = "Department"
	ForNodePool   SubjectKind = "NodePool"
)

// labelOf is the label that names a subject on what is rendered for it. An object
// has one of them.
var labelOf = map[SubjectKind]string{
	ForProject:    v1alpha1.LabelProject,
	ForDepartment: v1alpha1.LabelDepartment,
	ForNodePool:   v1alpha1.LabelNodePool,
}

// Label is the label that names a subject of this kind on what is rendered for it.
func (k SubjectKind) Label() string { return labelOf[k] }

// word is the kind as people and names of objects say it.
func (k SubjectKind) word() string { return strings.ToLower(string(k)) }

// Place is where a subject's objects are, and how they are marked.
type Place struct {
	// Kind and Name are the subject's.
	Kind SubjectKind
	Name string
	// Namespace is the project's; empty for other subjects, which have cluster-wide
	// objects alone.
	Namespace string
	// Fresh tells that the namespace was made for the project just now, so that
	// nothing of somebody else's is to be looked for in it.
	Fresh bool
}

// PlaceOf is the project's.
func PlaceOf(project *v1alpha1.Project) Place {
	return Place{Kind: ForProject, Name: project.Name, Namespace: project.NamespaceName()}
}

// ClusterWide is the place of what is rendered outside of namespaces.
func ClusterWide(kind SubjectKind, name string) Place { return Place{Kind: kind, Name: name} }

// String names the subject for people.
func (p Place) String() string {
	if p.Kind == ForNodePool {
		return "node pool " + p.Name
	}
	return p.Kind.word() + " " + p.Name
}

// Ours are the labels on everything that lifecycle renders for any subject.
func Ours() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
}

// labels are those on everything that is rendered for the place's subject.
func (p Place) labels() map[string]string {
	labels := Ours()
	labels[p.Kind.Label()] = p.Name
	return labels
}

// mayName tells whether a cluster-wide object of the place's subject may have the
// name: <name>, <name>.<suffix>, <kind>.<name> or <kind>.<name>.<suffix>, where the
// suffix has no dot. So two subjects never want the same name: their own names have
// no dots, and what begins with a kind's word and a dot is that kind's.
func (p Place) mayName(name string) bool {
	parts := strings.Split(name, ".")
	if len(parts) > 1 && isWord(parts[0]) {
		if parts[0] != p.Kind.word() {
			return false
		}
		parts = parts[1:]
	}
	return parts[0] == p.Name && (len(parts) == 1 || len(parts) == 2 && parts[1] != "")
}

// isWord tells whether it is the word of a kind of subject.
func isWord(text string) bool {
	for kind := range labelOf {
		if kind.word() == text {
			return true
		}
	}
	return false
}

// names says for people which are allowed.
func (p Place) names() string {
	word := p.Kind.word()
	return strings.Join([]string{p.Name, p.Name + ".<suffix>", word + "." + p.Name, word + "." + p.Name + ".<suffix>"}, ", ")
}
