// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/access"
)

var (
	kind   = schema.GroupKind{Group: v1alpha1.Group, Kind: "Project"}
	plural = schema.GroupResource{Group: v1alpha1.Group, Resource: "projects"}
)

// authority is the writer's over the project's department, and over the one from
// which it comes: the less of both. Whoever lacks it over either is refused.
func (v *Validator) authority(ctx context.Context, before, project *v1alpha1.Project) (access.Authority, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return access.OverNothing, err
	}
	least := access.OverAll
	for _, department := range departmentsOf(before, project) {
		authority, err := access.AuthorityOver(ctx, v.Administrators, request.UserInfo, department)
		if err != nil {
			return access.OverNothing, err
		}
		if authority == access.OverNothing {
			return authority, apierrors.NewForbidden(plural, project.Name, lacking(request.UserInfo.Username, department, before, project))
		}
		least = min(least, authority)
	}
	return least, nil
}

// departmentsOf are those that a change concerns: two where the project moves.
func departmentsOf(before, project *v1alpha1.Project) []string {
	if before == nil || before.Spec.Department == project.Spec.Department {
		return []string{project.Spec.Department}
	}
	return []string{before.Spec.Department, project.Spec.Department}
}

func lacking(user, department string, before, project *v1alpha1.Project) error {
	wants := "only whoever does makes, changes and deletes its projects"
	if of := departmentsOf(before, project); len(of) > 1 {
		wants = fmt.Sprintf("moving a project from %s to %s takes both", of[0], of[1])
	}
	return fmt.Errorf("%s does not administer department %s, and %s: ask a member of it with the role %s, or a system administrator for the right to administer departments/projects of that name",
		user, department, wants, v1alpha1.RoleDepartmentAdministrator)
}
