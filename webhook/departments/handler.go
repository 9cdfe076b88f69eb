// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package departments

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/access"
)

// Validator judges Departments.
type Validator struct {
	// Cached reads Projects, Departments and NodePools.
	Cached client.Reader
	// Live reads Projects from the API server before anybody is refused for what one
	// of them has.
	Live client.Reader
	// Clock is policy time.
	Clock clock.Clock
	// Administrators knows who administers departments.
	Administrators access.Administrators
}

var _ admission.Validator[*v1alpha1.Department] = (*Validator)(nil)

// Handler is the validator as the webhook serves it.
func (v *Validator) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator.
func (v *Validator) ValidateCreate(ctx context.Context, department *v1alpha1.Department) (admission.Warnings, error) {
	return v.judge(ctx, nil, department)
}

// ValidateUpdate implements admission.Validator.
func (v *Validator) ValidateUpdate(ctx context.Context, before, department *v1alpha1.Department) (admission.Warnings, error) {
	return v.judge(ctx, before, department)
}

// ValidateDelete refuses while the department has projects.
func (v *Validator) ValidateDelete(ctx context.Context, department *v1alpha1.Department) (admission.Warnings, error) {
	if _, err := v.authority(ctx, nil, department); err != nil {
		return nil, err
	}
	var left error
	for _, projects := range []client.Reader{v.Cached, v.Live} {
		var all v1alpha1.ProjectList
		if err := projects.List(ctx, &all); err != nil {
			return nil, fmt.Errorf("listing projects: %w", err)
		}
		if left = projectsLeft(department, all.Items); left == nil {
			return nil, nil
		}
	}
	return nil, apierrors.NewForbidden(plural, department.Name, left)
}

func (v *Validator) judge(ctx context.Context, before, department *v1alpha1.Department) (admission.Warnings, error) {
	authority, err := v.authority(ctx, before, department)
	if err != nil {
		return nil, err
	}
	if before != nil && equality.Semantic.DeepEqual(before.Spec, department.Spec) {
		return nil, nil
	}
	var errs field.ErrorList
	// What the cache has not seen yet, such as a project that just went, is no reason
	// to refuse.
	for _, projects := range []client.Reader{v.Cached, v.Live} {
		world, err := v.world(ctx, projects)
		if err != nil {
			return nil, err
		}
		var warnings []string
		if errs, warnings = Validate(before, department, authority, world, v.Clock.Now()); len(errs) == 0 {
			return warnings, nil
		}
	}
	return nil, apierrors.NewInvalid(kind, department.Name, errs)
}

// authority is the writer's over the department. Departments are made and deleted
// by those who administer all of them; a department's own administrators may
// change what is their own.
func (v *Validator) authority(ctx context.Context, before, department *v1alpha1.Department) (access.Authority, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return access.OverNothing, err
	}
	user := request.UserInfo.Username
	authority, err := access.AuthorityOver(ctx, v.Administrators, request.UserInfo, department.Name)
	switch {
	case err != nil:
		return authority, err
	case authority == access.OverAll:
		return authority, nil
	case before == nil:
		return authority, apierrors.NewForbidden(plural, department.Name,
			fmt.Errorf("only system administrators make and delete departments, and %s does not administer all of them: ask one, or for the right to administer departments/projects without a name", user))
	case authority == access.OverNothing:
		return authority, apierrors.NewForbidden(plural, department.Name,
			fmt.Errorf("%s does not administer it: ask a member of it with the role %s, or a system administrator", user, v1alpha1.RoleDepartmentAdministrator))
	}
	notOwn, err := NotOwn(before, department)
	if err == nil && len(notOwn) > 0 {
		err = apierrors.NewForbidden(plural, department.Name, notOwn.ToAggregate())
	}
	return authority, err
}

var (
	kind   = schema.GroupKind{Group: v1alpha1.Group, Kind: "Department"}
	plural = schema.GroupResource{Group: v1alpha1.Group, Resource: "departments"}
)
