// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package project validates new and changed Projects beyond their schema.
//
// It refuses the deletion of a Project with running GPU work unless an annotation confirms it.
//
// It checks the user's authority over the department and the project, the quotas and limits against the department's,
// the node pools, the members and the namespace. The response names all invalid fields, and warns of valid changes
// with side effects. Lifecycle applies the same rules again before it acts, since the cluster can change meanwhile.
//
// The package never repeats the checks of the schema, and never writes to the cluster.
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

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/webhook/validation"
)

// Validator validates Projects.
type Validator struct {
	// Cached reads Projects, NodePools, WorkloadClocks, Policies and AdmissionParameters.
	Cached client.Reader
	// Live reads from the API server: the current department, the namespace, and all Projects before a denial that
	// depends on another Project.
	Live client.Reader
	// Authorizer checks who administers departments and manages projects.
	Authorizer validation.ProjectAuthorizer
}

var _ admission.Validator[*v1alpha1.Project] = (*Validator)(nil)

// Handler returns the admission handler of the validator.
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

func (v *Validator) validate(ctx context.Context, before, project *v1alpha1.Project) (admission.Warnings, error) {
	authority, err := v.authorize(ctx, before, project)
	if err != nil {
		return nil, err
	}
	if before != nil && equality.Semantic.DeepEqual(before.Spec, project.Spec) {
		return nil, nil // changes of the metadata only need authority
	}
	var errs field.ErrorList
	// The cache can be stale, for example after the deletion of a project. Only current data denies.
	for _, projects := range []client.Reader{v.Cached, v.Live} {
		state, err := v.readClusterState(ctx, projects, before, project)
		if err != nil {
			return nil, err
		}
		var warnings []string
		if errs, warnings = Validate(before, project, authority, state); len(errs) == 0 {
			return warnings, nil
		}
	}
	return nil, apierrors.NewInvalid(projectKind, project.Name, errs)
}

var (
	projectKind     = schema.GroupKind{Group: v1alpha1.Group, Kind: "Project"}
	projectResource = schema.GroupResource{Group: v1alpha1.Group, Resource: "projects"}
)

// authorize returns the user's least authority over the departments that the change affects. It denies users without
// authority, and changes beyond those of a project manager.
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
			return authority, apierrors.NewForbidden(projectResource, project.Name,
				authorityError(request.UserInfo.Username, department, before, project))
		}
		least = min(least, authority)
	}
	if least > validation.AuthorityProject {
		return least, nil
	}
	denied, err := ValidateManagerChange(before, project)
	if err == nil && len(denied) > 0 {
		err = apierrors.NewForbidden(projectResource, project.Name, denied.ToAggregate())
	}
	return least, err
}

// resolveAuthority returns the user's authority over the existing project in a department. A new project has no
// manager yet.
func (v *Validator) resolveAuthority(
	ctx context.Context, user authenticationv1.UserInfo, department string, before *v1alpha1.Project,
) (validation.Authority, error) {
	if before == nil {
		return validation.ResolveAuthority(ctx, v.Authorizer, user, department)
	}
	return validation.ResolveProjectAuthority(ctx, v.Authorizer, user, department, before.Name)
}

// affectedDepartments returns the department of the project, or both departments of a project that moves.
func affectedDepartments(before, project *v1alpha1.Project) []string {
	if before == nil || before.Spec.Department == project.Spec.Department {
		return []string{project.Spec.Department}
	}
	return []string{before.Spec.Department, project.Spec.Department}
}

func authorityError(user, department string, before, project *v1alpha1.Project) error {
	reason := "only its administrators create and delete its projects"
	if departments := affectedDepartments(before, project); len(departments) > 1 {
		reason = fmt.Sprintf("moving a project from %s to %s requires both", departments[0], departments[1])
	} else if before != nil {
		reason = "does not manage the project either"
	}
	return fmt.Errorf("%s does not administer department %s, and %s: ask a member of it with the role %s, "+
		"or a system administrator for the right to administer departments/projects of that name",
		user, department, reason, v1alpha1.RoleDepartmentAdministrator)
}

// ClusterState has the objects that a project is validated against.
type ClusterState struct {
	// Department is the project's department; nil if it does not exist.
	Department *v1alpha1.Department
	// Namespace is the namespace of a new project; nil if it does not exist.
	Namespace *corev1.Namespace
	// Reserved are the namespaces that a new project cannot have, by name, and why.
	Reserved map[string]string
	// ReservedPatterns are the names that Sluice creates no namespace with.
	ReservedPatterns []v1alpha1.NamespacePattern
	// Projects are the existing projects of all departments.
	Projects []v1alpha1.Project
	// NodePools are the node pools of the cluster.
	NodePools []v1alpha1.NodePool
}

// readClusterState reads the cluster state, and its projects from a reader of choice.
func (v *Validator) readClusterState(
	ctx context.Context, projects client.Reader, before, project *v1alpha1.Project,
) (ClusterState, error) {
	var state ClusterState
	var department v1alpha1.Department
	switch found, err := getIfExists(ctx, v.Live, project.Spec.Department, &department); {
	case err != nil:
		return state, err
	case found:
		state.Department = &department
	}
	var all v1alpha1.ProjectList
	if err := projects.List(ctx, &all); err != nil {
		return state, fmt.Errorf("list projects: %w", err)
	}
	state.Projects = all.Items
	var pools v1alpha1.NodePoolList
	if err := v.Cached.List(ctx, &pools); err != nil {
		return state, fmt.Errorf("list node pools: %w", err)
	}
	state.NodePools = pools.Items
	if before != nil {
		return state, nil
	}
	var policy v1alpha1.Policy
	if _, err := getIfExists(ctx, v.Cached, "core.namespace", &policy); err != nil {
		return state, err
	}
	var ingress []byte
	if policy.Spec.Parameters != nil {
		ingress = policy.Spec.Parameters.Raw
	}
	var parameters v1alpha1.AdmissionParameters
	if _, err := getIfExists(ctx, v.Cached, v1alpha1.AdmissionParametersName, &parameters); err != nil {
		return state, err
	}
	state.Reserved = tenancy.ReservedNamespaces(policies.IngressNamespaces(ingress), &parameters.Spec)
	state.ReservedPatterns = parameters.Spec.ReservedNamespaces
	var namespace corev1.Namespace
	switch found, err := getIfExists(ctx, v.Live, project.NamespaceName(), &namespace); {
	case err != nil:
		return state, err
	case found:
		state.Namespace = &namespace
	}
	return state, nil
}

func getIfExists(ctx context.Context, reader client.Reader, name string, object client.Object) (bool, error) {
	err := reader.Get(ctx, types.NamespacedName{Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %T %s: %w", object, name, err)
	}
	return true, nil
}

// hasProject reports whether a project of that name exists.
func (s ClusterState) hasProject(name string) bool {
	for i := range s.Projects {
		if s.Projects[i].Name == name {
			return true
		}
	}
	return false
}

// conflictingProject returns another project with the same namespace, or "". Two projects that are created at the same
// time both pass; lifecycle gives the namespace to the first.
func (s ClusterState) conflictingProject(project *v1alpha1.Project) string {
	for i := range s.Projects {
		other := &s.Projects[i]
		if other.Name != project.Name && other.NamespaceName() == project.NamespaceName() {
			return other.Name
		}
	}
	return ""
}

// projectOfNamespace returns a function that finds the project of a namespace, the new project included.
func (s ClusterState) projectOfNamespace(project *v1alpha1.Project) func(namespace string) string {
	return func(namespace string) string {
		if project.NamespaceName() == namespace {
			return project.Name
		}
		for i := range s.Projects {
			if s.Projects[i].NamespaceName() == namespace {
				return s.Projects[i].Name
			}
		}
		return ""
	}
}
