// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/check"
	"sluice.dev/policies/input"
	"sluice.dev/policies/store"
)

// maxTenants limits the projects in which example objects are evaluated, beside the example
// projects. Each costs some milliseconds of the time limit.
const maxTenants = 3

// environment returns the policies in force, and the first projects that a policy matches.
func (v *Validator) environment(ctx context.Context, policy *v1alpha1.Policy) (check.Environment, error) {
	var inForce v1alpha1.PolicyList
	var projects v1alpha1.ProjectList
	for _, list := range []client.ObjectList{&inForce, &projects} {
		if err := v.Cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return check.Environment{}, fmt.Errorf("list policies and projects: %w", err)
		}
	}
	environment := check.Environment{Policies: store.Sources(policies.BuiltIn(), inForce.Items)}
	match := policy.Spec.Match
	matched := slices.DeleteFunc(projects.Items, func(project v1alpha1.Project) bool {
		return len(match.Projects) > 0 && !slices.Contains(match.Projects, project.Name) ||
			len(match.Departments) > 0 && !slices.Contains(match.Departments, project.Spec.Department) ||
			slices.Contains(match.Exclude.Projects, project.Name) || slices.Contains(match.Exclude.Departments, project.Spec.Department)
	})
	slices.SortFunc(matched, func(a, b v1alpha1.Project) int { return cmp.Compare(a.Name, b.Name) })
	for i := range matched[:min(len(matched), maxTenants)] {
		tenant, err := v.tenant(ctx, &matched[i])
		if err != nil {
			return check.Environment{}, err
		}
		environment.Tenants = append(environment.Tenants, tenant)
	}
	return environment, nil
}

// tenant returns a project with its department and node pools, as policies read them.
func (v *Validator) tenant(ctx context.Context, project *v1alpha1.Project) (check.Tenant, error) {
	department := v1alpha1.Department{}
	department.Name = project.Spec.Department
	if err := v.Cached.Get(ctx, types.NamespacedName{Name: department.Name}, &department); client.IgnoreNotFound(err) != nil {
		return check.Tenant{}, fmt.Errorf("get department %s: %w", department.Name, err)
	}
	var all v1alpha1.NodePoolList
	if err := v.Cached.List(ctx, &all); err != nil {
		return check.Tenant{}, fmt.Errorf("list node pools: %w", err)
	}
	pools := input.NewProjectPools(project, func(name string) *v1alpha1.NodePool {
		at := slices.IndexFunc(all.Items, func(pool v1alpha1.NodePool) bool { return pool.Name == name })
		if at < 0 {
			return nil
		}
		return &all.Items[at]
	})
	return check.NewTenant(input.NewProject(project, &department, input.RefusedNodes(all.Items)), input.NewDepartment(&department), pools)
}
