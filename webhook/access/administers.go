// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

const (
	// VerbAdminister is the verb on the virtual resource departments/projects that
	// makes somebody an administrator of a department.
	VerbAdminister = "administer"
	// VerbManage is the verb on projects, which no request has, that lets somebody
	// look after a project's people and quotas.
	VerbManage = "manage"
)

// EveryDepartment stands for all departments, also those to come.
const EveryDepartment = ""

// Reviewer asks by SubjectAccessReviews.
type Reviewer struct {
	// Client makes them.
	Client client.Client
}

var _ Writers = Reviewer{}

// Administers tells whether the user may administer the department of that name,
// or [EveryDepartment]: a right on names alone is none on all.
func (r Reviewer) Administers(ctx context.Context, user authenticationv1.UserInfo, department string) (bool, error) {
	may, err := r.may(ctx, user, authorizationv1.ResourceAttributes{
		Verb: VerbAdminister, Resource: "departments", Subresource: "projects", Name: department,
	})
	if err != nil {
		return false, fmt.Errorf("asking whether %s may administer department %q: %w", user.Username, department, err)
	}
	return may, nil
}

// Manages tells whether the user may manage the project of that name.
func (r Reviewer) Manages(ctx context.Context, user authenticationv1.UserInfo, project string) (bool, error) {
	may, err := r.may(ctx, user, authorizationv1.ResourceAttributes{Verb: VerbManage, Resource: "projects", Name: project})
	if err != nil {
		return false, fmt.Errorf("asking whether %s may manage project %q: %w", user.Username, project, err)
	}
	return may, nil
}

// may asks about a resource of Sluice's group.
func (r Reviewer) may(ctx context.Context, user authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error) {
	what.Group, what.Version = v1alpha1.Group, v1alpha1.Version
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra(user.Extra), ResourceAttributes: &what,
	}}
	if err := r.Client.Create(ctx, review); err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

func extra(of map[string]authenticationv1.ExtraValue) map[string]authorizationv1.ExtraValue {
	if len(of) == 0 {
		return nil
	}
	values := make(map[string]authorizationv1.ExtraValue, len(of))
	for key, value := range of {
		values[key] = authorizationv1.ExtraValue(value)
	}
	return values
}
