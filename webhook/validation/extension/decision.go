// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/validation"
)

// approverRoles are the roles whose holders decide in a department.
func approverRoles(department *v1alpha1.Department) []v1alpha1.ApproverRole {
	if roles := department.Spec.Extensions.Approvers; len(roles) > 0 {
		return roles
	}
	return []v1alpha1.ApproverRole{v1alpha1.ApproverRole(v1alpha1.RoleDepartmentAdministrator)} // as the schema says
}

// canDecide tells whether the user holds one of the roles that decide: as a member
// of the department or the project, or, for the two that administer, by the right
// to. Cheap answers come first: the API server is asked for want of another.
func canDecide(ctx context.Context, user authenticationv1.UserInfo, o *namespaceTenant, administrators validation.DepartmentAuthorizer) (bool, error) {
	roles := approverRoles(o.department)
	for _, member := range slices.Concat(o.department.Spec.Members, o.project.Spec.Members) {
		if slices.Contains(roles, v1alpha1.ApproverRole(member.Role)) && matchesMember(user, &member) {
			return true, nil
		}
	}
	for role, of := range map[v1alpha1.ApproverRole]string{
		v1alpha1.ApproverRole(v1alpha1.RoleDepartmentAdministrator): o.department.Name,
		v1alpha1.RoleSystemAdministrator:                            validation.AllDepartments,
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

// matchesMember tells whether the user is the member, or one of its group.
func matchesMember(user authenticationv1.UserInfo, member *v1alpha1.Member) bool {
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

// describeApprovers says who decides, in words.
func (o *namespaceTenant) describeApprovers() string {
	var roles []string
	for _, role := range approverRoles(o.department) {
		roles = append(roles, string(role))
	}
	return fmt.Sprintf("a user with the role %s in department %s or project %s", strings.Join(roles, " or "), o.department.Name, o.project.Name)
}

// statusChange is what somebody does to an Extension's status.
type statusChange int

const (
	// statusUnchanged: it stays as it is.
	statusUnchanged statusChange = iota
	// statusDecided: an open one is approved or refused.
	statusDecided
	// decisionMissing: something is written, and no decision.
	decisionMissing
	// protectedFieldChanged: there is a decision, and what is Sluice's to write besides.
	protectedFieldChanged
	// statusAlreadyDecided: it was decided before.
	statusAlreadyDecided
)

// classifyChange tells what is done, by the statuses before and after. Who decided, and
// when, is part of the decision.
func classifyChange(before, after *v1alpha1.ExtensionStatus) statusChange {
	switch {
	case equality.Semantic.DeepEqual(before, after):
		return statusUnchanged
	case before.Decision != "":
		return statusAlreadyDecided
	case after.Decision == "":
		return decisionMissing
	}
	decided := before.DeepCopy()
	decided.Decision, decided.Message = after.Decision, after.Message
	decided.DecidedBy, decided.DecidedAt = after.DecidedBy, after.DecidedAt
	if equality.Semantic.DeepEqual(decided, after) {
		return statusDecided
	}
	return protectedFieldChanged
}
