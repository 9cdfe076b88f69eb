// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package projects judges Projects by what their schema cannot know.
//
// Enters: a Project that is made or changed, and by whom; its
// Department, the namespace it names, and the other Projects. Leaves: an answer
// that names every wrong field: a department that the writer does not
// administer, more than whoever only manages the project may change, a pool that is not there, more than the department has left,
// limits looser than the department's, a namespace that it may not have; and
// warnings of what is allowed but will be felt.
//
// It never repeats what the schema checks, and never adopts or makes anything;
// lifecycle decides again, by the same rules, before it acts.
package project

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/validation"
)

// Validator judges Projects.
type Validator struct {
	// Cached reads Projects.
	Cached client.Reader
	// Live reads from the API server: a department as it is now, a namespace, whose
	// annotations decide who may have it, and all Projects before anybody is refused
	// for what another of them has.
	Live client.Reader
	// Authorizer knows who administers departments, and who manages projects.
	Authorizer validation.ProjectAuthorizer
}

var _ admission.Validator[*v1alpha1.Project] = (*Validator)(nil)

// Handler is the validator as the webhook serves it.
func (v *Validator) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator.
func (v *Validator) ValidateCreate(ctx context.Context, project *v1alpha1.Project) (admission.Warnings, error) {
	return v.validate(ctx, nil, project)
}

// ValidateUpdate implements admission.Validator.
func (v *Validator) ValidateUpdate(ctx context.Context, before, project *v1alpha1.Project) (admission.Warnings, error) {
	return v.validate(ctx, before, project)
}

// ValidateDelete implements admission.Validator. The API server judges deletions by
// itself, so that they do not wait for the webhook: it is never asked.
func (v *Validator) ValidateDelete(context.Context, *v1alpha1.Project) (admission.Warnings, error) {
	return nil, nil
}

func (v *Validator) validate(ctx context.Context, before, project *v1alpha1.Project) (admission.Warnings, error) {
	authority, err := v.authorize(ctx, before, project)
	if err != nil {
		return nil, err
	}
	if before != nil && equality.Semantic.DeepEqual(before.Spec, project.Spec) {
		return nil, nil // of the metadata there is nothing to judge but by whom it is written
	}
	var errs field.ErrorList
	// What the cache has not seen yet, such as a project that just went, is no reason
	// to refuse.
	for _, projects := range []client.Reader{v.Cached, v.Live} {
		world, err := v.readClusterState(ctx, projects, before, project)
		if err != nil {
			return nil, err
		}
		var warnings []string
		if errs, warnings = Validate(before, project, authority, world); len(errs) == 0 {
			return warnings, nil
		}
	}
	return nil, apierrors.NewInvalid(projectKind, project.Name, errs)
}

var (
	projectKind     = schema.GroupKind{Group: v1alpha1.Group, Kind: "Project"}
	projectResource = schema.GroupResource{Group: v1alpha1.Group, Resource: "projects"}
)

// authorize is the writer's over the project and its department, and over the
// department from which it comes: the least of them. Whoever lacks it is refused,
// and so is whoever only manages the project and changes more than that takes.
func (v *Validator) authorize(ctx context.Context, before, project *v1alpha1.Project) (validation.Authority, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return validation.AuthorityNone, err
	}
	least := validation.AuthorityAll
	for _, department := range affectedDepartments(before, project) {
		authority, err := v.resolveAuthority(ctx, request.UserInfo, department, before)
		if err != nil {
			return validation.AuthorityNone, err
		}
		if authority == validation.AuthorityNone {
			return authority, apierrors.NewForbidden(projectResource, project.Name, authorityError(request.UserInfo.Username, department, before, project))
		}
		least = min(least, authority)
	}
	if least > validation.AuthorityProject {
		return least, nil
	}
	beyond, err := ValidateManagerChange(before, project)
	if err == nil && len(beyond) > 0 {
		err = apierrors.NewForbidden(projectResource, project.Name, beyond.ToAggregate())
	}
	return least, err
}

// resolveAuthority is the user's authority over the project as it was, in that department. What
// is new, or goes, nobody only manages.
func (v *Validator) resolveAuthority(ctx context.Context, user authenticationv1.UserInfo, department string, before *v1alpha1.Project) (validation.Authority, error) {
	if before == nil {
		return validation.ResolveAuthority(ctx, v.Authorizer, user, department)
	}
	return validation.ResolveProjectAuthority(ctx, v.Authorizer, user, department, before.Name)
}

// affectedDepartments are those that a change concerns: two where the project moves.
func affectedDepartments(before, project *v1alpha1.Project) []string {
	if before == nil || before.Spec.Department == project.Spec.Department {
		return []string{project.Spec.Department}
	}
	return []string{before.Spec.Department, project.Spec.Department}
}

func authorityError(user, department string, before, project *v1alpha1.Project) error {
	wants := "only its administrators create and delete its projects"
	if of := affectedDepartments(before, project); len(of) > 1 {
		wants = fmt.Sprintf("moving a project from %s to %s requires both", of[0], of[1])
	} else if before != nil {
		wants = "does not manage the project either"
	}
	return fmt.Errorf("%s does not administer department %s, and %s: ask a member of it with the role %s, or a system administrator for the right to administer departments/projects of that name",
		user, department, wants, v1alpha1.RoleDepartmentAdministrator)
}

// ClusterState is what a project is judged by.
type ClusterState struct {
	// Department is the one that the project names; nil where there is none.
	Department *v1alpha1.Department
	// Namespace is the one that the project names; nil where there is none. Only a
	// new project's is known.
	Namespace *corev1.Namespace
	// Projects are all, of every department, the one as it was before among them.
	Projects []v1alpha1.Project
}

// readClusterState reads it; the projects from that reader.
func (v *Validator) readClusterState(ctx context.Context, projects client.Reader, before, project *v1alpha1.Project) (ClusterState, error) {
	var world ClusterState
	var department v1alpha1.Department
	switch found, err := getIfExists(ctx, v.Live, project.Spec.Department, &department); {
	case err != nil:
		return world, err
	case found:
		world.Department = &department
	}
	var all v1alpha1.ProjectList
	if err := projects.List(ctx, &all); err != nil {
		return world, fmt.Errorf("list projects: %w", err)
	}
	world.Projects = all.Items
	if before != nil {
		return world, nil
	}
	var namespace corev1.Namespace
	switch found, err := getIfExists(ctx, v.Live, project.NamespaceName(), &namespace); {
	case err != nil:
		return world, err
	case found:
		world.Namespace = &namespace
	}
	return world, nil
}

func getIfExists(ctx context.Context, reader client.Reader, name string, into client.Object) (bool, error) {
	err := reader.Get(ctx, types.NamespacedName{Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %T %s: %w", into, name, err)
	}
	return true, nil
}

// hasProject tells whether there is a project of that name already.
func (w ClusterState) hasProject(name string) bool {
	for i := range w.Projects {
		if w.Projects[i].Name == name {
			return true
		}
	}
	return false
}

// conflictingProject is another project that names the same namespace; "" where there is none.
// Two made at the same instant both pass; lifecycle lets the first of them have it.
func (w ClusterState) conflictingProject(project *v1alpha1.Project) string {
	for i := range w.Projects {
		other := &w.Projects[i]
		if other.Name != project.Name && other.NamespaceName() == project.NamespaceName() {
			return other.Name
		}
	}
	return ""
}

// projectOfNamespace is the project that has a namespace, this one's own included.
func (w ClusterState) projectOfNamespace(project *v1alpha1.Project) func(namespace string) string {
	return func(namespace string) string {
		if project.NamespaceName() == namespace {
			return project.Name
		}
		for i := range w.Projects {
			if w.Projects[i].NamespaceName() == namespace {
				return w.Projects[i].Name
			}
		}
		return ""
	}
}
