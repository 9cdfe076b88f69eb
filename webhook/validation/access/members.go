// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
)

// Names that Kubernetes gives to its own users and groups.
const (
	systemPrefix              = "system:" // begins all of them
	serviceAccountUserPrefix  = "system:serviceaccount:"
	serviceAccountGroupPrefix = "system:serviceaccounts:"
	allServiceAccountsGroup   = "system:serviceaccounts"
	authenticatedGroup        = "system:authenticated"
	unauthenticatedGroup      = "system:unauthenticated"
)

// ValidateMembers tells which of the members that are new, have a new role or go, whoever
// has that authority may not make such, or take away, and which it were better to
// think twice about. The function names the project that has a namespace; "" where
// none has.
func ValidateMembers(path *field.Path, before, after []v1alpha1.Member, authority Authority, projectOf func(namespace string) string) (field.ErrorList, []string) {
	var errs field.ErrorList
	var warnings []string
	for i := range after {
		m := &after[i]
		if slices.Contains(before, *m) {
			continue
		}
		at := path.Index(i)
		if !authority.CanGrant(m.Role) {
			errs = append(errs, field.Invalid(at.Child("role"), m.Role, "is more than you may grant: "+authority.describeGrants(m.Role)))
			continue
		}
		if was := memberRole(before, m); was != "" && !authority.CanGrant(was) {
			errs = append(errs, field.Invalid(at.Child("role"), m.Role, fmt.Sprintf(
				"takes the role %s, which is more than you may take away: %s", was, authority.describeGrants(was))))
			continue
		}
		if nobody := validateMemberName(at, m); nobody != nil {
			errs = append(errs, nobody)
			continue
		}
		who := describeImpliedUsers(m, projectOf)
		switch {
		case who == "":
		case authority < AuthorityDepartment:
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, fmt.Sprintf("%s would have the role %s; whoever manages a project "+
				"gives roles to people by name, or to a group of them: ask an administrator of the department", who, m.Role)))
		case m.Role == v1alpha1.RoleDepartmentAdministrator:
			errs = append(errs, field.Invalid(at.Child("role"), m.Role, fmt.Sprintf("%s would administer the department; "+
				"give this role to people by name, to a group of your own, or to a service account in a namespace that is no project's", who)))
		default:
			warnings = append(warnings, fmt.Sprintf("%s: %s will have the role %s", at, who, m.Role))
		}
	}
	return append(errs, validateRemovedMembers(path, before, after, authority)...), warnings
}

// validateRemovedMembers tells which of those who are members no more may not be taken away.
func validateRemovedMembers(path *field.Path, before, after []v1alpha1.Member, authority Authority) field.ErrorList {
	var errs field.ErrorList
	for i := range before {
		m := &before[i]
		if memberRole(after, m) == "" && !authority.CanGrant(m.Role) {
			errs = append(errs, field.Invalid(path, fmt.Sprintf("without %s %s", m.Kind, m.Name), fmt.Sprintf(
				"takes the role %s, which is more than you may take away: %s", m.Role, authority.describeGrants(m.Role))))
		}
	}
	return errs
}

// memberRole is what the same subject has among those; "" where it is no member.
func memberRole(members []v1alpha1.Member, of *v1alpha1.Member) v1alpha1.Role {
	for i := range members {
		if m := &members[i]; m.Kind == of.Kind && m.Namespace == of.Namespace && m.Name == of.Name {
			return m.Role
		}
	}
	return ""
}

// validateMemberName refuses names of Kubernetes' own that no member can have.
func validateMemberName(path *field.Path, m *v1alpha1.Member) *field.Error {
	switch {
	case m.Kind == v1alpha1.MemberUser && strings.HasPrefix(m.Name, serviceAccountUserPrefix):
		return field.Invalid(path.Child("name"), m.Name, "is a service account: use kind ServiceAccount, with its namespace and name")
	case m.Kind == v1alpha1.MemberUser && strings.HasPrefix(m.Name, systemPrefix):
		return field.Invalid(path.Child("name"), m.Name, "is one of Kubernetes' own users (system:...); want the name of a person or a program, as `kubectl auth whoami` says it")
	case m.Kind == v1alpha1.MemberGroup && m.Name == unauthenticatedGroup:
		return field.Invalid(path.Child("name"), m.Name, "is everybody who has not logged in; want a group of people")
	}
	return nil
}

// describeImpliedUsers says who else acts as the member, where that is whoever may run
// pods in some project, or log in at all; "" where the member is who it seems.
func describeImpliedUsers(m *v1alpha1.Member, projectOf func(namespace string) string) string {
	namespace := ""
	switch m.Kind {
	case v1alpha1.MemberServiceAccount:
		namespace = m.Namespace
	case v1alpha1.MemberGroup:
		switch of, isOf := strings.CutPrefix(m.Name, serviceAccountGroupPrefix); {
		case m.Name == authenticatedGroup:
			return "everybody who can log in"
		case m.Name == allServiceAccountsGroup:
			return "whoever may run a pod anywhere"
		case isOf:
			namespace = of
		}
	}
	if namespace == "" {
		return ""
	}
	if project := projectOf(namespace); project != "" {
		return fmt.Sprintf("whoever may run pods in project %s (namespace %s)", project, namespace)
	}
	return ""
}

// ValidateOwners tells which owners that are new, or have a new name in Kubernetes, are no
// persons.
func ValidateOwners(path *field.Path, before, after []v1alpha1.Owner) field.ErrorList {
	var errs field.ErrorList
	for i := range after {
		o := &after[i]
		known := func(was v1alpha1.Owner) bool { return was.Email == o.Email && was.User == o.User }
		if strings.HasPrefix(o.User, systemPrefix) && !slices.ContainsFunc(before, known) {
			errs = append(errs, field.Invalid(path.Index(i).Child("user"), o.User,
				"is one of Kubernetes' own users (system:...), and an owner is a person: want the person's name as `kubectl auth whoami` says it, or leave it out"))
		}
	}
	return errs
}

// minimumAuthority is the least authority with which each role is granted and taken away,
// in a department and in its projects. Whoever manages a project grants what lets
// people work in it, and nothing that has its Secrets, decides in it or manages it.
// Whoever administers a department appoints its other administrators too; a role
// that is not listed, such as one that is added some day, is granted by those alone
// who administer them all.
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

// CanGrant tells whether the role may be granted, and taken away, with that
// authority.
func (a Authority) CanGrant(role v1alpha1.Role) bool { return a >= requiredAuthority(role) }

func requiredAuthority(role v1alpha1.Role) Authority {
	if least, listed := minimumAuthority[role]; listed {
		return least
	}
	return AuthorityAll
}

// describeGrants says which roles the authority grants, and who grants this one.
func (a Authority) describeGrants(role v1alpha1.Role) string {
	whom := "somebody who administers every department"
	switch requiredAuthority(role) {
	case AuthorityDepartment:
		whom = "a member of the department with the role " + string(v1alpha1.RoleDepartmentAdministrator)
	case AuthorityProject:
		whom = "somebody who manages the project"
	}
	var own []string
	for _, role := range slices.Sorted(maps.Keys(minimumAuthority)) {
		if a.CanGrant(role) {
			own = append(own, string(role))
		}
	}
	if len(own) == 0 {
		return "ask " + whom
	}
	return "yours are " + strings.Join(own, ", ") + "; ask " + whom
}
