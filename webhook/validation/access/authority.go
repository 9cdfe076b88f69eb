// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access tells who may write what of departments and projects.
//
// Enters: the user of a request, as its authentication says it, a department or a
// project, and what a change makes of it. Leaves: how much of it is the user's, as
// the API server says it, which fields the change touches, and which members the
// user may not make such, or take away.
//
// It never decides by itself whose anything is, and remembers no answer.
package access

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// DepartmentAuthorizer knows who administers departments: a [Reviewer].
type DepartmentAuthorizer interface {
	// Administers tells whether the user may administer the department, or
	// [EveryDepartment].
	Administers(ctx context.Context, user authenticationv1.UserInfo, department string) (bool, error)
}

// ProjectAuthorizer knows who writes projects: a [Reviewer].
type ProjectAuthorizer interface {
	DepartmentAuthorizer
	// Manages tells whether the user may manage the project.
	Manages(ctx context.Context, user authenticationv1.UserInfo, project string) (bool, error)
}

// Authority is how much of the departments and their projects is somebody's.
type Authority int

// The authorities, the least first.
const (
	// AuthorityNone administers nothing and manages nothing.
	AuthorityNone Authority = iota
	// AuthorityProject manages one project: its people and its quotas.
	AuthorityProject
	// AuthorityDepartment administers the department.
	AuthorityDepartment
	// AuthorityAll administers every department, also those to come.
	AuthorityAll
)

// ResolveAuthority is the user's over the department: OverNothing, OverDepartment or
// OverAll.
func ResolveAuthority(ctx context.Context, administrators DepartmentAuthorizer, user authenticationv1.UserInfo, department string) (Authority, error) {
	all, err := administrators.Administers(ctx, user, AllDepartments)
	if err != nil {
		return AuthorityNone, err
	}
	if all {
		return AuthorityAll, nil
	}
	one, err := administrators.Administers(ctx, user, department)
	if err != nil || !one {
		return AuthorityNone, err
	}
	return AuthorityDepartment, nil
}

// ResolveProjectAuthority is the user's over a project of the department: that over
// the department, or OverProject where the user has none and manages the project.
func ResolveProjectAuthority(ctx context.Context, writers ProjectAuthorizer, user authenticationv1.UserInfo, department, project string) (Authority, error) {
	authority, err := ResolveAuthority(ctx, writers, user, department)
	if err != nil || authority > AuthorityNone {
		return authority, err
	}
	manages, err := writers.Manages(ctx, user, project)
	if err != nil || !manages {
		return AuthorityNone, err
	}
	return AuthorityProject, nil
}

const (
	// VerbAdminister is the verb on the virtual resource departments/projects that
	// makes somebody an administrator of a department.
	VerbAdminister = "administer"
	// VerbManage is the verb on projects, which no request has, that lets somebody
	// look after a project's people and quotas.
	VerbManage = "manage"
)

// AllDepartments stands for all departments, also those to come.
const AllDepartments = ""

// Reviewer asks by SubjectAccessReviews.
type Reviewer struct {
	// Client makes them.
	Client client.Client
}

var _ ProjectAuthorizer = Reviewer{}

// Administers tells whether the user may administer the department of that name,
// or [EveryDepartment]: a right on names alone is none on all.
func (r Reviewer) Administers(ctx context.Context, user authenticationv1.UserInfo, department string) (bool, error) {
	may, err := r.isAllowed(ctx, user, authorizationv1.ResourceAttributes{
		Verb: VerbAdminister, Resource: "departments", Subresource: "projects", Name: department,
	})
	if err != nil {
		return false, fmt.Errorf("asking whether %s may administer department %q: %w", user.Username, department, err)
	}
	return may, nil
}

// Manages tells whether the user may manage the project of that name.
func (r Reviewer) Manages(ctx context.Context, user authenticationv1.UserInfo, project string) (bool, error) {
	may, err := r.isAllowed(ctx, user, authorizationv1.ResourceAttributes{Verb: VerbManage, Resource: "projects", Name: project})
	if err != nil {
		return false, fmt.Errorf("asking whether %s may manage project %q: %w", user.Username, project, err)
	}
	return may, nil
}

// isAllowed asks about a resource of Sluice's group.
func (r Reviewer) isAllowed(ctx context.Context, user authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error) {
	what.Group, what.Version = v1alpha1.Group, v1alpha1.Version
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: convertExtra(user.Extra), ResourceAttributes: &what,
	}}
	if err := r.Client.Create(ctx, review); err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

func convertExtra(of map[string]authenticationv1.ExtraValue) map[string]authorizationv1.ExtraValue {
	if len(of) == 0 {
		return nil
	}
	values := make(map[string]authorizationv1.ExtraValue, len(of))
	for key, value := range of {
		values[key] = authorizationv1.ExtraValue(value)
	}
	return values
}
