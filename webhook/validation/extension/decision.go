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

// isApprover reports whether the user decides on Extensions with that action.
func (v *Validator) isApprover(
	ctx context.Context, user authenticationv1.UserInfo, t *namespaceTenant, action v1alpha1.ExtensionAction,
) (bool, error) {
	return hasRole(ctx, user, t.approvingMembers(action), t, v.Authorizer, t.department.Approvers(action))
}

// approvingMembers returns the members among whom the approvers are. A project's own members do not decide on its deletion.
func (t *namespaceTenant) approvingMembers(action v1alpha1.ExtensionAction) []v1alpha1.Member {
	if action == v1alpha1.ActionDelete {
		return t.department.Spec.Members
	}
	return t.members()
}

// members returns the members of the department and of the project.
func (t *namespaceTenant) members() []v1alpha1.Member {
	return slices.Concat(t.department.Spec.Members, t.project.Spec.Members)
}

// hasRole reports whether the user has one of the roles: as one of the members, or by RBAC for the two administrators'
// roles. It creates a SubjectAccessReview only if no member entry gives the user such a role.
func hasRole(
	ctx context.Context, user authenticationv1.UserInfo, members []v1alpha1.Member, t *namespaceTenant,
	authorizer validation.DepartmentAuthorizer, roles []v1alpha1.ApproverRole,
) (bool, error) {
	for _, member := range members {
		if slices.Contains(roles, v1alpha1.ApproverRole(member.Role)) && matchesMember(user, &member) {
			return true, nil
		}
	}
	for role, department := range map[v1alpha1.ApproverRole]string{
		v1alpha1.ApproverRole(v1alpha1.RoleDepartmentAdministrator): t.department.Name,
		v1alpha1.RoleSystemAdministrator:                            validation.AllDepartments,
	} {
		if !slices.Contains(roles, role) {
			continue
		}
		if allowed, err := authorizer.Administers(ctx, user, department); allowed || err != nil {
			return allowed, err
		}
	}
	return false, nil
}

// matchesMember reports whether the user is the member, or belongs to the member's group.
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

// describeApprovers describes the users who can decide on an Extension with that action.
func (t *namespaceTenant) describeApprovers(action v1alpha1.ExtensionAction) string {
	var roles []string
	for _, role := range t.department.Approvers(action) {
		roles = append(roles, string(role))
	}
	text := fmt.Sprintf("a user with the role %s in department %s", strings.Join(roles, " or "), t.department.Name)
	if action != v1alpha1.ActionDelete {
		text += " or project " + t.project.Name
	}
	return text
}

// statusChange is the kind of a status update.
type statusChange int

const (
	// statusUnchanged: nothing changes.
	statusUnchanged statusChange = iota
	// statusDecided: the update approves or denies an open Extension.
	statusDecided
	// decisionMissing: the update has no decision.
	decisionMissing
	// protectedFieldChanged: the update has a decision, and also changes a field that only Sluice may change.
	protectedFieldChanged
	// statusAlreadyDecided: the Extension was decided before.
	statusAlreadyDecided
)

// classifyChange compares two statuses. The fields decidedBy and decidedAt are part of the decision.
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
	decided.Decision, decided.Message, decided.Until = after.Decision, after.Message, after.Until
	decided.DecidedBy, decided.DecidedAt = after.DecidedBy, after.DecidedAt
	if equality.Semantic.DeepEqual(decided, after) {
		return statusDecided
	}
	return protectedFieldChanged
}
