// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"sluice.dev/api/v1alpha1"
)

// subjects are the members as Kubernetes binds them, sorted, each once.
func subjects(members ...v1alpha1.Member) []rbacv1.Subject {
	all := make([]rbacv1.Subject, 0, len(members))
	for _, member := range members {
		subject := rbacv1.Subject{Kind: string(member.Kind), Name: member.Name}
		if member.Kind == v1alpha1.MemberServiceAccount {
			subject.Namespace = member.Namespace
		} else {
			subject.APIGroup = rbacv1.GroupName
		}
		all = append(all, subject)
	}
	slices.SortFunc(all, func(a, b rbacv1.Subject) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(all)
}

// with are those of the members that have one of the roles.
func with(members []v1alpha1.Member, roles ...v1alpha1.Role) []v1alpha1.Member {
	var some []v1alpha1.Member
	for _, member := range members {
		if slices.Contains(roles, member.Role) {
			some = append(some, member)
		}
	}
	return some
}

// owners are a project's that are known in Kubernetes. They are no members, and
// may have a role besides.
func owners(project *v1alpha1.Project) []v1alpha1.Member {
	var some []v1alpha1.Member
	for _, owner := range project.Spec.Owners {
		if owner.User != "" {
			some = append(some, v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: owner.User, Role: roleOwner})
		}
	}
	return some
}

// roleOwner is what a project's owners have: no role that a member could be given.
const roleOwner v1alpha1.Role = "owner"
