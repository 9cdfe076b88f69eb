// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation has the rules that the validators of Projects, Departments and Extensions share.
//
// [ResolveAuthority] queries the API server for the departments and projects that a user administers. [ChangedFields] returns
// the fields that a change touches, and [ValidateMembers] checks which roles the user can grant and revoke. The
// quota functions compare a quota with the department's, with those of the other projects and with the current use.
//
// Authority comes from SubjectAccessReviews alone, and is never cached. The quota functions check what a change
// requests: a change that requests less, or something else, is valid even if an earlier excess remains.
package validation

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// DepartmentAuthorizer checks who administers departments; [Reviewer] implements it.
type DepartmentAuthorizer interface {
	// Administers reports whether the user can administer the department, or [AllDepartments].
	Administers(ctx context.Context, user authenticationv1.UserInfo, department string) (bool, error)
}

// ProjectAuthorizer checks who manages projects; [Reviewer] implements it.
type ProjectAuthorizer interface {
	DepartmentAuthorizer
	// Manages reports whether the user can manage the project.
	Manages(ctx context.Context, user authenticationv1.UserInfo, project string) (bool, error)
}

// Authority is the extent of a user's rights over departments and their projects.
type Authority int

// The authorities, in ascending order.
const (
	// AuthorityNone administers nothing and manages nothing.
	AuthorityNone Authority = iota
	// AuthorityProject manages one project: its members and its quotas.
	AuthorityProject
	// AuthorityDepartment administers the department.
	AuthorityDepartment
	// AuthorityAll administers all departments, future ones included.
	AuthorityAll
)

// ResolveAuthority returns the user's authority over a department: none, department or all.
func ResolveAuthority(
	ctx context.Context, authorizer DepartmentAuthorizer, user authenticationv1.UserInfo, department string,
) (Authority, error) {
	all, err := authorizer.Administers(ctx, user, AllDepartments)
	if err != nil {
		return AuthorityNone, err
	}
	if all {
		return AuthorityAll, nil
	}
	one, err := authorizer.Administers(ctx, user, department)
	if err != nil || !one {
		return AuthorityNone, err
	}
	return AuthorityDepartment, nil
}

// ResolveProjectAuthority returns the user's authority over a project of the department: the authority over the
// department, or AuthorityProject for a user who only manages the project.
func ResolveProjectAuthority(
	ctx context.Context, authorizer ProjectAuthorizer, user authenticationv1.UserInfo, department, project string,
) (Authority, error) {
	authority, err := ResolveAuthority(ctx, authorizer, user, department)
	if err != nil || authority > AuthorityNone {
		return authority, err
	}
	manages, err := authorizer.Manages(ctx, user, project)
	if err != nil || !manages {
		return AuthorityNone, err
	}
	return AuthorityProject, nil
}

const (
	// VerbAdminister is the verb on the virtual resource departments/projects for administrators of a department.
	VerbAdminister = "administer"
	// VerbManage is the verb on projects for managers of a project's members and quotas. No API request has this verb.
	VerbManage = "manage"
	// VerbChangeOthers is the verb on the virtual resource workloads for those who may change what other users created.
	VerbChangeOthers = "others"
	// VerbChangeOwn is the verb on it for those who may change what they created themselves.
	VerbChangeOwn = "own-only"
)

// AllDepartments is the name for all departments, future ones included.
const AllDepartments = ""

// Reviewer authorizes users by SubjectAccessReviews.
type Reviewer struct {
	// Client creates the reviews.
	Client client.Client
}

var _ ProjectAuthorizer = Reviewer{}

// Administers implements DepartmentAuthorizer. A right that RBAC restricts to names does not cover [AllDepartments].
func (r Reviewer) Administers(ctx context.Context, user authenticationv1.UserInfo, department string) (bool, error) {
	allowed, err := r.isAllowed(ctx, user, authorizationv1.ResourceAttributes{
		Verb: VerbAdminister, Resource: "departments", Subresource: "projects", Name: department,
	})
	if err != nil {
		return false, fmt.Errorf("check whether %s can administer department %q: %w", user.Username, department, err)
	}
	return allowed, nil
}

// Manages implements ProjectAuthorizer.
func (r Reviewer) Manages(ctx context.Context, user authenticationv1.UserInfo, project string) (bool, error) {
	allowed, err := r.isAllowed(ctx, user, authorizationv1.ResourceAttributes{Verb: VerbManage, Resource: "projects", Name: project})
	if err != nil {
		return false, fmt.Errorf("check whether %s can manage project %q: %w", user.Username, project, err)
	}
	return allowed, nil
}

// ChangesOthers reports whether the roles of a user in a namespace let him change what others created. The review knows the
// groups of a user only from a request of that user.
func (r Reviewer) ChangesOthers(ctx context.Context, user authenticationv1.UserInfo, namespace string) (bool, error) {
	allowed, err := r.isAllowed(ctx, user, authorizationv1.ResourceAttributes{
		Verb: VerbChangeOthers, Resource: "workloads", Namespace: namespace,
	})
	if err != nil {
		return false, fmt.Errorf("check whether %s can change workloads of others: %w", user.Username, err)
	}
	return allowed, nil
}

// ChangesOnlyOwn reports whether a role of a user in a namespace lets him change what he created, and none what others created.
func (r Reviewer) ChangesOnlyOwn(ctx context.Context, user authenticationv1.UserInfo, namespace string) (bool, error) {
	own := authorizationv1.ResourceAttributes{Verb: VerbChangeOwn, Resource: "workloads", Namespace: namespace}
	ownOnly, err := r.isAllowed(ctx, user, own)
	if err != nil {
		return false, fmt.Errorf("check whether %s changes only own workloads: %w", user.Username, err)
	}
	if !ownOnly {
		return false, nil
	}
	changesOthers, err := r.ChangesOthers(ctx, user, namespace)
	return !changesOthers, err
}

// isAllowed creates a SubjectAccessReview for a resource of Sluice's API group.
func (r Reviewer) isAllowed(
	ctx context.Context, user authenticationv1.UserInfo, resource authorizationv1.ResourceAttributes,
) (bool, error) {
	resource.Group, resource.Version = v1alpha1.Group, v1alpha1.Version
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: convertExtra(user.Extra), ResourceAttributes: &resource,
	}}
	if err := r.Client.Create(ctx, review); err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

func convertExtra(extra map[string]authenticationv1.ExtraValue) map[string]authorizationv1.ExtraValue {
	if len(extra) == 0 {
		return nil
	}
	values := make(map[string]authorizationv1.ExtraValue, len(extra))
	for key, value := range extra {
		values[key] = authorizationv1.ExtraValue(value)
	}
	return values
}
