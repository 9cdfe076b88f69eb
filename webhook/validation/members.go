// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
)

// The names of Kubernetes' own users and groups.
const (
	systemPrefix              = "system:" // all users and groups of Kubernetes
	serviceAccountUserPrefix  = "system:serviceaccount:"
	serviceAccountGroupPrefix = "system:serviceaccounts:"
	allServiceAccountsGroup   = "system:serviceaccounts"
	authenticatedGroup        = "system:authenticated"
	unauthenticatedGroup      = "system:unauthenticated"
)

// ValidateMembers validates new, changed and removed members against the writer's authority. It also warns if a role
// applies to unexpectedly many users. projectOf returns the project that owns a namespace, or "".
func ValidateMembers(
	path *field.Path, before, after []v1alpha1.Member, authority Authority, projectOf func(namespace string) string,
) (field.ErrorList, []string) {
	var errs field.ErrorList
	var warnings []string
	for i := range after {
		m := &after[i]
		if slices.Contains(before, *m) {
			continue
		}
		memberPath := path.Index(i)
		if !authority.CanGrant(m.Role) {
			errs = append(errs, field.Invalid(memberPath.Child("role"), m.Role, "is more than you may grant: "+authority.describeGrants(m.Role)))
			continue
		}
		if oldRole := memberRole(before, m); oldRole != "" && !authority.CanGrant(oldRole) {
			errs = append(errs, field.Invalid(memberPath.Child("role"), m.Role, fmt.Sprintf(
				"removes the role %s, which you cannot revoke: %s", oldRole, authority.describeGrants(oldRole))))
			continue
		}
		if err := validateMemberName(memberPath, m); err != nil {
			errs = append(errs, err)
			continue
		}
		users := describeImpliedUsers(m, projectOf)
		switch {
		case users == "":
		case authority < AuthorityDepartment:
			errs = append(errs, field.Invalid(memberPath.Child("name"), m.Name, fmt.Sprintf("%s would have the role %s; a project manager "+
				"grants roles to users by name, or to a group of users: ask an administrator of the department", users, m.Role)))
		case m.Role == v1alpha1.RoleDepartmentAdministrator:
			errs = append(errs, field.Invalid(memberPath.Child("role"), m.Role, fmt.Sprintf("%s would administer the department; "+
				"grant this role to users by name, to your own group, or to a service account in a namespace outside all projects", users)))
		default:
			warnings = append(warnings, fmt.Sprintf("%s: %s will have the role %s", memberPath, users, m.Role))
		}
	}
	return append(errs, validateRemovedMembers(path, before, after, authority)...), warnings
}

// validateRemovedMembers denies the removal of members whose role the authority cannot revoke.
func validateRemovedMembers(path *field.Path, before, after []v1alpha1.Member, authority Authority) field.ErrorList {
	var errs field.ErrorList
	for i := range before {
		m := &before[i]
		if memberRole(after, m) == "" && !authority.CanGrant(m.Role) {
			errs = append(errs, field.Invalid(path, fmt.Sprintf("without %s %s", m.Kind, m.Name), fmt.Sprintf(
				"removes the role %s, which you cannot revoke: %s", m.Role, authority.describeGrants(m.Role))))
		}
	}
	return errs
}

// memberRole returns the role of the same subject among the members; "" if it is not a member.
func memberRole(members []v1alpha1.Member, subject *v1alpha1.Member) v1alpha1.Role {
	for i := range members {
		if m := &members[i]; m.Kind == subject.Kind && m.Namespace == subject.Namespace && m.Name == subject.Name {
			return m.Role
		}
	}
	return ""
}

// validateMemberName denies the names of Kubernetes' own users and groups.
func validateMemberName(path *field.Path, m *v1alpha1.Member) *field.Error {
	switch {
	case m.Kind == v1alpha1.MemberUser && strings.HasPrefix(m.Name, serviceAccountUserPrefix):
		return field.Invalid(path.Child("name"), m.Name, "is a service account: use kind ServiceAccount, with its namespace and name")
	case m.Kind == v1alpha1.MemberUser && strings.HasPrefix(m.Name, systemPrefix):
		return field.Invalid(path.Child("name"), m.Name,
			"is a system user of Kubernetes (system:...); use the name of a person or a program as `kubectl auth whoami` reports it")
	case m.Kind == v1alpha1.MemberGroup && m.Name == unauthenticatedGroup:
		return field.Invalid(path.Child("name"), m.Name, "contains all users who have not logged in; use a group of people")
	}
	return nil
}

// describeImpliedUsers describes the users who can act as the member although the member does not name them: all
// users who can log in, or all users who can run pods in the member's namespace. It returns "" for other members.
func describeImpliedUsers(m *v1alpha1.Member, projectOf func(namespace string) string) string {
	namespace := ""
	switch m.Kind {
	case v1alpha1.MemberServiceAccount:
		namespace = m.Namespace
	case v1alpha1.MemberGroup:
		switch groupNamespace, ok := strings.CutPrefix(m.Name, serviceAccountGroupPrefix); {
		case m.Name == authenticatedGroup:
			return "every user who can log in"
		case m.Name == allServiceAccountsGroup:
			return "every user who can run a pod in any namespace"
		case ok:
			namespace = groupNamespace
		}
	}
	if namespace == "" {
		return ""
	}
	if project := projectOf(namespace); project != "" {
		return fmt.Sprintf("every user who can run pods in project %s (namespace %s)", project, namespace)
	}
	return ""
}

// ValidateOwners denies new owners whose user is not a person.
func ValidateOwners(path *field.Path, before, after []v1alpha1.Owner) field.ErrorList {
	var errs field.ErrorList
	for i := range after {
		o := &after[i]
		unchanged := func(old v1alpha1.Owner) bool { return old.Email == o.Email && old.User == o.User }
		if strings.HasPrefix(o.User, systemPrefix) && !slices.ContainsFunc(before, unchanged) {
			errs = append(errs, field.Invalid(path.Index(i).Child("user"), o.User, "is a system user of Kubernetes (system:...), "+
				"and an owner is a person: use the person's name as `kubectl auth whoami` reports it, or omit the field"))
		}
	}
	return errs
}

// minimumAuthority is the least authority that can grant and revoke each role. A project manager can grant the roles
// for work in the project, but no role that can read Secrets, approve or manage. An administrator of a department
// can appoint others. A role that is not listed requires AuthorityAll.
var minimumAuthority = map[v1alpha1.Role]Authority{
	v1alpha1.RoleDepartmentAdministrator: AuthorityDepartment,
	v1alpha1.RoleDepartmentViewer:        AuthorityDepartment,
	v1alpha1.RoleResearchManager:         AuthorityDepartment,
	v1alpha1.RoleEditor:                  AuthorityDepartment,
	v1alpha1.RoleL1Researcher:            AuthorityProject,
	v1alpha1.RoleL2Researcher:            AuthorityProject,
	v1alpha1.RoleMLEngineer:              AuthorityProject,
	v1alpha1.RoleViewer:                  AuthorityProject,
}

// CanGrant reports whether the authority can grant and revoke the role.
func (a Authority) CanGrant(role v1alpha1.Role) bool { return a >= requiredAuthority(role) }

func requiredAuthority(role v1alpha1.Role) Authority {
	if minimum, ok := minimumAuthority[role]; ok {
		return minimum
	}
	return AuthorityAll
}

// describeGrants describes which roles the authority can grant, and who can grant this one.
func (a Authority) describeGrants(role v1alpha1.Role) string {
	grantor := "a system administrator"
	switch requiredAuthority(role) {
	case AuthorityDepartment:
		grantor = "a member of the department with the role " + string(v1alpha1.RoleDepartmentAdministrator)
	case AuthorityProject:
		grantor = "a manager of the project"
	}
	var grantable []string
	for _, role := range slices.Sorted(maps.Keys(minimumAuthority)) {
		if a.CanGrant(role) {
			grantable = append(grantable, string(role))
		}
	}
	if len(grantable) == 0 {
		return "ask " + grantor
	}
	return "you can grant " + strings.Join(grantable, ", ") + "; ask " + grantor
}
