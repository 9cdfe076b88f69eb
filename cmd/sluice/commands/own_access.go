// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// ownAccess is what the API server says about the user.
type ownAccess struct {
	user   string
	groups []string
	// projects, departments and nodePools are the names that the user may get, sorted.
	projects, departments, nodePools []string
	// all reports that the user may get every Project.
	all bool
	// incomplete reports that an authorizer of the API server could not list its rules.
	incomplete bool
}

// readOwnAccess returns the user's name, groups and rights.
func readOwnAccess(ctx context.Context, c client.Client) (ownAccess, error) {
	var self authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &self); err != nil {
		return ownAccess{}, fmt.Errorf("get your user name: %w", err)
	}
	// The rules on cluster-scoped objects are the same in each namespace.
	rules := authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault}}
	if err := c.Create(ctx, &rules); err != nil {
		return ownAccess{}, fmt.Errorf("get your rights: %w", err)
	}
	access := newOwnAccess(rules.Status)
	access.user, access.groups = self.Status.UserInfo.Username, self.Status.UserInfo.Groups
	return access, nil
}

// newOwnAccess returns the objects of Sluice that rules allow to get.
func newOwnAccess(status authorizationv1.SubjectRulesReviewStatus) ownAccess {
	access := ownAccess{incomplete: status.Incomplete}
	for i := range status.ResourceRules {
		rule := &status.ResourceRules[i]
		allows := func(list []string, value string) bool {
			return slices.Contains(list, value) || slices.Contains(list, "*")
		}
		if !allows(rule.APIGroups, v1alpha1.Group) || !allows(rule.Verbs, "get") {
			continue
		}
		if len(rule.ResourceNames) == 0 {
			access.all = access.all || allows(rule.Resources, "projects")
			continue
		}
		for resource, names := range map[string]*[]string{
			"projects": &access.projects, "departments": &access.departments, "nodepools": &access.nodePools,
		} {
			if allows(rule.Resources, resource) {
				*names = append(*names, rule.ResourceNames...)
			}
		}
	}
	for _, names := range []*[]string{&access.projects, &access.departments, &access.nodePools} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return access
}

// rolesOf returns the roles of the user in a project, from the members of the project and, if the user may
// read it, of its department.
func (a *ownAccess) rolesOf(project *v1alpha1.Project, department *v1alpha1.Department) []ownRole {
	roles := []ownRole{}
	for i := range project.Spec.Owners {
		if user := project.Spec.Owners[i].User; user != "" && user == a.user {
			roles = append(roles, ownRole{"owner", "project"})
		}
	}
	collect := func(members []v1alpha1.Member, through string) {
		for i := range members {
			if from, ok := a.matches(&members[i]); ok {
				roles = append(roles, ownRole{string(members[i].Role), through + from})
			}
		}
	}
	collect(project.Spec.Members, "project")
	if department != nil {
		collect(department.Spec.Members, "department")
	}
	if len(roles) == 0 && department == nil && slices.Contains(a.projects, project.Name) {
		roles = append(roles, ownRole{"member", "department"})
	}
	slices.SortFunc(roles, func(x, y ownRole) int { return cmp.Or(cmp.Compare(x.Role, y.Role), cmp.Compare(x.Through, y.Through)) })
	return slices.Compact(roles)
}

// matches reports whether a member is the user, or one of the user's groups, which it returns.
func (a *ownAccess) matches(member *v1alpha1.Member) (from string, ok bool) {
	switch member.Kind {
	case v1alpha1.MemberUser:
		return "", member.Name == a.user
	case v1alpha1.MemberGroup:
		return ", group " + member.Name, slices.Contains(a.groups, member.Name)
	case v1alpha1.MemberServiceAccount:
		return "", a.user == "system:serviceaccount:"+member.Namespace+":"+member.Name
	}
	return "", false
}

// listVisibleProjects returns all projects, or those that the user may get by name if the user may not list them.
func listVisibleProjects(ctx context.Context, c client.Client) (projects []v1alpha1.Project, err error) {
	err = listPages(ctx, c, func(page *v1alpha1.ProjectList) { projects = append(projects, page.Items...) })
	if !apierrors.IsForbidden(err) {
		return projects, err
	}
	access, err := readOwnAccess(ctx, c)
	if err != nil {
		return nil, err
	}
	return access.readProjects(ctx, c, len(access.projects))
}

// readProjects reads the first projects that the user may get by name.
func (a *ownAccess) readProjects(ctx context.Context, c client.Reader, most int) ([]v1alpha1.Project, error) {
	var projects []v1alpha1.Project
	for _, name := range a.projects[:min(most, len(a.projects))] {
		var project v1alpha1.Project
		err := c.Get(ctx, types.NamespacedName{Name: name}, &project)
		switch {
		case err == nil:
			projects = append(projects, project)
		case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			return nil, fmt.Errorf("get project %s: %w", name, err)
		} // otherwise it was deleted, or the user removed from it, since the rights were read
	}
	return projects, nil
}

// listVisibleNames returns the names of all objects of a kind, or those that the user may get if the user may not list
// them.
func listVisibleNames(ctx context.Context, c client.Client, kind string, own func(*ownAccess) []string) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	err := c.List(ctx, list)
	if apierrors.IsForbidden(err) {
		access, err := readOwnAccess(ctx, c)
		return own(&access), err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}
