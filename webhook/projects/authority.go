// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
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

// authority is the writer's over the project and its department, and over the
// department from which it comes: the least of them. Whoever lacks it is refused,
// and so is whoever only manages the project and changes more than that takes.
func (v *Validator) authority(ctx context.Context, before, project *v1alpha1.Project) (access.Authority, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return access.OverNothing, err
	}
	least := access.OverAll
	for _, department := range departmentsOf(before, project) {
		authority, err := v.over(ctx, request.UserInfo, department, before)
		if err != nil {
			return access.OverNothing, err
		}
		if authority == access.OverNothing {
			return authority, apierrors.NewForbidden(plural, project.Name, lacking(request.UserInfo.Username, department, before, project))
		}
		least = min(least, authority)
	}
	if least > access.OverProject {
		return least, nil
	}
	beyond, err := Beyond(before, project)
	if err == nil && len(beyond) > 0 {
		err = apierrors.NewForbidden(plural, project.Name, beyond.ToAggregate())
	}
	return least, err
}

// over is the user's authority over the project as it was, in that department. What
// is new, or goes, nobody only manages.
func (v *Validator) over(ctx context.Context, user authenticationv1.UserInfo, department string, before *v1alpha1.Project) (access.Authority, error) {
	if before == nil {
		return access.AuthorityOver(ctx, v.Writers, user, department)
	}
	return access.AuthorityOverProject(ctx, v.Writers, user, department, before.Name)
}

// departmentsOf are those that a change concerns: two where the project moves.
func departmentsOf(before, project *v1alpha1.Project) []string {
	if before == nil || before.Spec.Department == project.Spec.Department {
		return []string{project.Spec.Department}
	}
	return []string{before.Spec.Department, project.Spec.Department}
}

func lacking(user, department string, before, project *v1alpha1.Project) error {
	wants := "only whoever does makes and deletes its projects"
	if of := departmentsOf(before, project); len(of) > 1 {
		wants = fmt.Sprintf("moving a project from %s to %s takes both", of[0], of[1])
	} else if before != nil {
		wants = "does not manage the project either"
	}
	return fmt.Errorf("%s does not administer department %s, and %s: ask a member of it with the role %s, or a system administrator for the right to administer departments/projects of that name",
		user, department, wants, v1alpha1.RoleDepartmentAdministrator)
}
