// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package department validates new, changed and deleted Departments beyond their schema.
//
// It checks the user's authority, the quotas against those of the department's projects, the time zone and the
// schedule of the digest. It denies the deletion of a department with projects. The response names all invalid fields,
// and warns of valid changes with side effects.
//
// The package never repeats the checks of the schema, and never writes to the cluster.
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

// Validator validates Departments.
type Validator struct {
	// Cached reads Projects, Departments and NodePools.
	Cached client.Reader
	// Live reads Projects from the API server before a denial that depends on one of them.
	Live client.Reader
	// Clock is policy time.
	Clock policytime.Clock
	// Authorizer checks who administers departments.
	Authorizer validation.DepartmentAuthorizer
}

var _ admission.Validator[*v1alpha1.Department] = (*Validator)(nil)

// Handler returns the admission handler of the validator.
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

// ValidateDelete denies the deletion while the department has projects.
func (v *Validator) ValidateDelete(ctx context.Context, department *v1alpha1.Department) (admission.Warnings, error) {
	if _, err := v.authorize(ctx, nil, department); err != nil {
		return nil, err
	}
	var denial error
	for _, projects := range []client.Reader{v.Cached, v.Live} {
		var all v1alpha1.ProjectList
		if err := projects.List(ctx, &all); err != nil {
			return nil, fmt.Errorf("list projects: %w", err)
		}
		if denial = validateNoProjects(department, all.Items); denial == nil {
			return nil, nil
		}
	}
	return nil, apierrors.NewForbidden(departmentResource, department.Name, denial)
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
	// The cache can be stale, for example after the deletion of a project. Only current data denies.
	for _, projects := range []client.Reader{v.Cached, v.Live} {
		state, err := v.readClusterState(ctx, projects)
		if err != nil {
			return nil, err
		}
		var warnings []string
		if errs, warnings = Validate(before, department, authority, state, v.Clock.Now()); len(errs) == 0 {
			return warnings, nil
		}
	}
	return nil, apierrors.NewInvalid(departmentKind, department.Name, errs)
}

// authorize returns the user's authority over the department. Only administrators of all departments create and delete
// departments. A department's own administrators change some of its fields.
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
			fmt.Errorf("only system administrators create and delete departments, and %s does not administer all departments: "+
				"ask one of them, or request the right to administer departments/projects without a name", user))
	case authority == validation.AuthorityNone:
		return authority, apierrors.NewForbidden(departmentResource, department.Name,
			fmt.Errorf("%s does not administer it: ask a member of it with the role %s, or a system administrator",
				user, v1alpha1.RoleDepartmentAdministrator))
	}
	denied, err := ValidateAdministratorChange(before, department)
	if err == nil && len(denied) > 0 {
		err = apierrors.NewForbidden(departmentResource, department.Name, denied.ToAggregate())
	}
	return authority, err
}

var (
	departmentKind     = schema.GroupKind{Group: v1alpha1.Group, Kind: "Department"}
	departmentResource = schema.GroupResource{Group: v1alpha1.Group, Resource: "departments"}
)

// ClusterState has the existing objects that a department is validated against.
type ClusterState struct {
	// Projects are the projects of all departments.
	Projects    []v1alpha1.Project
	Departments []v1alpha1.Department
	NodePools   []v1alpha1.NodePool
}

// readClusterState reads the cluster state, and its projects from a reader of choice.
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

// projectOfNamespace returns the project of a namespace, or "".
func (s ClusterState) projectOfNamespace(namespace string) string {
	for i := range s.Projects {
		if s.Projects[i].NamespaceName() == namespace {
			return s.Projects[i].Name
		}
	}
	return ""
}

// validateNoProjects returns an error if the department has projects.
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
	return fmt.Errorf("it has %d projects: %s; first delete them, or move them: sluice projects move --from %s --to DEPARTMENT --dry-run",
		len(names), tenancy.JoinLimited(names), department.Name)
}
