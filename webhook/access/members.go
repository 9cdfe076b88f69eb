// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
)

// Names that Kubernetes gives to its own users and groups.
const (
	reserved                = "system:" // begins all of them
	serviceAccountUser      = "system:serviceaccount:"
	serviceAccountsIn       = "system:serviceaccounts:"
	everyServiceAccount     = "system:serviceaccounts"
	everybodyLoggedIn       = "system:authenticated"
	everybodyWhoDidNotLogIn = "system:unauthenticated"
)

// Members tells which of the members that are new, have a new role or go, whoever
// has that authority may not make such, or take away, and which it were better to
// think twice about. The function names the project that has a namespace; "" where
// none has.
func Members(path *field.Path, before, after []v1alpha1.Member, authority Authority, projectOf func(namespace string) string) (field.ErrorList, []string) {
	var errs field.ErrorList
	var warnings []string
	for i := range after {
		m := &after[i]
		if slices.Contains(before, *m) {
			continue
		}
		at := path.Index(i)
		if !authority.MayGrant(m.Role) {
			errs = append(errs, field.Invalid(at.Child("role"), m.Role, "is more than you may grant: "+authority.whoGrants(m.Role)))
			continue
		}
		if was := roleIn(before, m); was != "" && !authority.MayGrant(was) {
			errs = append(errs, field.Invalid(at.Child("role"), m.Role, fmt.Sprintf(
				"takes the role %s, which is more than you may take away: %s", was, authority.whoGrants(was))))
			continue
		}
		if nobody := nobodyByName(at, m); nobody != nil {
			errs = append(errs, nobody)
			continue
		}
		who := everybodyBehind(m, projectOf)
		switch {
		case who == "":
		case authority < OverDepartment:
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, fmt.Sprintf("%s would have the role %s; whoever manages a project "+
				"gives roles to people by name, or to a group of them: ask an administrator of the department", who, m.Role)))
		case m.Role == v1alpha1.RoleDepartmentAdministrator:
			errs = append(errs, field.Invalid(at.Child("role"), m.Role, fmt.Sprintf("%s would administer the department; "+
				"give this role to people by name, to a group of your own, or to a service account in a namespace that is no project's", who)))
		default:
			warnings = append(warnings, fmt.Sprintf("%s: %s will have the role %s", at, who, m.Role))
		}
	}
	return append(errs, gone(path, before, after, authority)...), warnings
}

// gone tells which of those who are members no more may not be taken away.
func gone(path *field.Path, before, after []v1alpha1.Member, authority Authority) field.ErrorList {
	var errs field.ErrorList
	for i := range before {
		m := &before[i]
		if roleIn(after, m) == "" && !authority.MayGrant(m.Role) {
			errs = append(errs, field.Invalid(path, fmt.Sprintf("without %s %s", m.Kind, m.Name), fmt.Sprintf(
				"takes the role %s, which is more than you may take away: %s", m.Role, authority.whoGrants(m.Role))))
		}
	}
	return errs
}

// roleIn is what the same subject has among those; "" where it is no member.
func roleIn(members []v1alpha1.Member, of *v1alpha1.Member) v1alpha1.Role {
	for i := range members {
		if m := &members[i]; m.Kind == of.Kind && m.Namespace == of.Namespace && m.Name == of.Name {
			return m.Role
		}
	}
	return ""
}

// nobodyByName refuses names of Kubernetes' own that no member can have.
func nobodyByName(path *field.Path, m *v1alpha1.Member) *field.Error {
	switch {
	case m.Kind == v1alpha1.MemberUser && strings.HasPrefix(m.Name, serviceAccountUser):
		return field.Invalid(path.Child("name"), m.Name, "is a service account: use kind ServiceAccount, with its namespace and name")
	case m.Kind == v1alpha1.MemberUser && strings.HasPrefix(m.Name, reserved):
		return field.Invalid(path.Child("name"), m.Name, "is one of Kubernetes' own users (system:...); want the name of a person or a program, as `kubectl auth whoami` says it")
	case m.Kind == v1alpha1.MemberGroup && m.Name == everybodyWhoDidNotLogIn:
		return field.Invalid(path.Child("name"), m.Name, "is everybody who has not logged in; want a group of people")
	}
	return nil
}

// everybodyBehind says who else acts as the member, where that is whoever may run
// pods in some project, or log in at all; "" where the member is who it seems.
func everybodyBehind(m *v1alpha1.Member, projectOf func(namespace string) string) string {
	namespace := ""
	switch m.Kind {
	case v1alpha1.MemberServiceAccount:
		namespace = m.Namespace
	case v1alpha1.MemberGroup:
		switch of, isOf := strings.CutPrefix(m.Name, serviceAccountsIn); {
		case m.Name == everybodyLoggedIn:
			return "everybody who can log in"
		case m.Name == everyServiceAccount:
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

// Owners tells which owners that are new, or have a new name in Kubernetes, are no
// persons.
func Owners(path *field.Path, before, after []v1alpha1.Owner) field.ErrorList {
	var errs field.ErrorList
	for i := range after {
		o := &after[i]
		known := func(was v1alpha1.Owner) bool { return was.Email == o.Email && was.User == o.User }
		if strings.HasPrefix(o.User, reserved) && !slices.ContainsFunc(before, known) {
			errs = append(errs, field.Invalid(path.Index(i).Child("user"), o.User,
				"is one of Kubernetes' own users (system:...), and an owner is a person: want the person's name as `kubectl auth whoami` says it, or leave it out"))
		}
	}
	return errs
}
