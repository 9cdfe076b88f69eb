// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extensions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/access"
)

// approvers are the roles whose holders decide in a department.
func approvers(department *v1alpha1.Department) []v1alpha1.ApproverRole {
	if roles := department.Spec.Extensions.Approvers; len(roles) > 0 {
		return roles
	}
	return []v1alpha1.ApproverRole{v1alpha1.ApproverRole(v1alpha1.RoleDepartmentAdministrator)} // as the schema says
}

// decides tells whether the user holds one of the roles that decide: as a member
// of the department or the project, or, for the two that administer, by the right
// to. Cheap answers come first: the API server is asked for want of another.
func decides(ctx context.Context, user authenticationv1.UserInfo, o *owner, administrators access.Administrators) (bool, error) {
	roles := approvers(o.department)
	for _, member := range slices.Concat(o.department.Spec.Members, o.project.Spec.Members) {
		if slices.Contains(roles, v1alpha1.ApproverRole(member.Role)) && is(user, &member) {
			return true, nil
		}
	}
	for role, of := range map[v1alpha1.ApproverRole]string{
		v1alpha1.ApproverRole(v1alpha1.RoleDepartmentAdministrator): o.department.Name,
		v1alpha1.RoleSystemAdministrator:                            access.EveryDepartment,
	} {
		if !slices.Contains(roles, role) {
			continue
		}
		if may, err := administrators.Administers(ctx, user, of); may || err != nil {
			return may, err
		}
	}
	return false, nil
}

// is tells whether the user is the member, or one of its group.
func is(user authenticationv1.UserInfo, member *v1alpha1.Member) bool {
	switch member.Kind {
	case v1alpha1.MemberUser:
		return user.Username == member.Name
	case v1alpha1.MemberGroup:
		return slices.Contains(user.Groups, member.Name)
	case v1alpha1.MemberServiceAccount:
		return user.Username == "system:serviceaccount:"+member.Namespace+":"+member.Name
	}
	return false
}

// who says who decides, in words.
func (o *owner) who() string {
	var roles []string
	for _, role := range approvers(o.department) {
		roles = append(roles, string(role))
	}
	return fmt.Sprintf("whoever has the role %s in department %s or project %s", strings.Join(roles, " or "), o.department.Name, o.project.Name)
}
