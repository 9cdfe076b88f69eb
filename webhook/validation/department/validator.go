// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package departments judges Departments by what their schema cannot know.
//
// Enters: a Department that is made, changed or deleted, and by whom; its
// projects, the other Departments and the NodePools. Leaves: an answer that
// names every wrong field: what the writer may not change, less than the
// department's projects were promised, a time zone that does not exist, a digest
// that never comes, projects that would be left without a department; and
// warnings of what is allowed but will be felt.
//
// It never repeats what the schema checks.
package department

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/validation"
)

// Validator judges Departments.
type Validator struct {
	// Cached reads Projects, Departments and NodePools.
	Cached client.Reader
	// Live reads Projects from the API server before anybody is refused for what one
	// of them has.
	Live client.Reader
	// Clock is policy time.
	Clock policytime.Clock
	// Authorizer knows who administers departments.
	Authorizer validation.DepartmentAuthorizer
}

var _ admission.Validator[*v1alpha1.Department] = (*Validator)(nil)

// Handler is the validator as the webhook serves it.
func (v *Validator) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator.
func (v *Validator) ValidateCreate(ctx context.Context, department *v1alpha1.Department) (admission.Warnings, error) {
	return v.validate(ctx, nil, department)
}

// ValidateUpdate implements admission.Validator.
func (v *Validator) ValidateUpdate(ctx context.Context, before, department *v1alpha1.Department) (admission.Warnings, error) {
	return v.validate(ctx, before, department)
}

// ValidateDelete refuses while the department has projects.
func (v *Validator) ValidateDelete(ctx context.Context, department *v1alpha1.Department) (admission.Warnings, error) {
	if _, err := v.authorize(ctx, nil, department); err != nil {
		return nil, err
	}
	var left error
	for _, projects := range []client.Reader{v.Cached, v.Live} {
		var all v1alpha1.ProjectList
		if err := projects.List(ctx, &all); err != nil {
			return nil, fmt.Errorf("list projects: %w", err)
		}
		if left = validateNoProjects(department, all.Items); left == nil {
			return nil, nil
		}
	}
	return nil, apierrors.NewForbidden(departmentResource, department.Name, left)
}

func (v *Validator) validate(ctx context.Context, before, department *v1alpha1.Department) (admission.Warnings, error) {
	authority, err := v.authorize(ctx, before, department)
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
		world, err := v.readClusterState(ctx, projects)
		if err != nil {
			return nil, err
		}
		var warnings []string
		if errs, warnings = Validate(before, department, authority, world, v.Clock.Now()); len(errs) == 0 {
			return warnings, nil
		}
	}
	return nil, apierrors.NewInvalid(departmentKind, department.Name, errs)
}

// authorize is the writer's over the department. Departments are made and deleted
// by those who administer all of them; a department's own administrators may
// change what is their own.
func (v *Validator) authorize(ctx context.Context, before, department *v1alpha1.Department) (validation.Authority, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return validation.AuthorityNone, err
	}
	user := request.UserInfo.Username
	authority, err := validation.ResolveAuthority(ctx, v.Authorizer, request.UserInfo, department.Name)
	switch {
	case err != nil:
		return authority, err
	case authority == validation.AuthorityAll:
		return authority, nil
	case before == nil:
		return authority, apierrors.NewForbidden(departmentResource, department.Name,
			fmt.Errorf("only system administrators create and delete departments, and %s does not administer all departments: ask one of them, or request the right to administer departments/projects without a name", user))
	case authority == validation.AuthorityNone:
		return authority, apierrors.NewForbidden(departmentResource, department.Name,
			fmt.Errorf("%s does not administer it: ask a member of it with the role %s, or a system administrator", user, v1alpha1.RoleDepartmentAdministrator))
	}
	notOwn, err := ValidateAdministratorChange(before, department)
	if err == nil && len(notOwn) > 0 {
		err = apierrors.NewForbidden(departmentResource, department.Name, notOwn.ToAggregate())
	}
	return authority, err
}

var (
	departmentKind     = schema.GroupKind{Group: v1alpha1.Group, Kind: "Department"}
	departmentResource = schema.GroupResource{Group: v1alpha1.Group, Resource: "departments"}
)

// ClusterState is what a department is judged by.
type ClusterState struct {
	// Projects are all, of every department.
	Projects []v1alpha1.Project
	// Departments are all, the one as it was before among them.
	Departments []v1alpha1.Department
	// NodePools are all.
	NodePools []v1alpha1.NodePool
}

// readClusterState reads it; the projects from that reader.
func (v *Validator) readClusterState(ctx context.Context, projects client.Reader) (ClusterState, error) {
	var all v1alpha1.ProjectList
	if err := projects.List(ctx, &all); err != nil {
		return ClusterState{}, fmt.Errorf("list projects: %w", err)
	}
	var departments v1alpha1.DepartmentList
	if err := v.Cached.List(ctx, &departments); err != nil {
		return ClusterState{}, fmt.Errorf("list departments: %w", err)
	}
	var pools v1alpha1.NodePoolList
	if err := v.Cached.List(ctx, &pools); err != nil {
		return ClusterState{}, fmt.Errorf("list node pools: %w", err)
	}
	return ClusterState{Projects: all.Items, Departments: departments.Items, NodePools: pools.Items}, nil
}

// projectOfNamespace is the project that has a namespace; "" where none has.
func (w ClusterState) projectOfNamespace(namespace string) string {
	for i := range w.Projects {
		if w.Projects[i].NamespaceName() == namespace {
			return w.Projects[i].Name
		}
	}
	return ""
}

// validateNoProjects refuses a deletion while there are projects of the department.
func validateNoProjects(department *v1alpha1.Department, projects []v1alpha1.Project) error {
	var names []string
	for i := range projects {
		if projects[i].Spec.Department == department.Name {
			names = append(names, projects[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("it has %d projects: %s; first delete them, or move them with their spec.department", len(names), tenancy.JoinLimited(names))
}
