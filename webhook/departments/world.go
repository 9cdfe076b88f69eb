// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package departments

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/promises"
	"sluice.dev/api/v1alpha1"
)

// World is what a department is judged by.
type World struct {
	// Projects are all, of every department.
	Projects []v1alpha1.Project
	// Departments are all, the one as it was before among them.
	Departments []v1alpha1.Department
	// NodePools are all.
	NodePools []v1alpha1.NodePool
}

// world reads it; the projects from that reader.
func (v *Validator) world(ctx context.Context, projects client.Reader) (World, error) {
	var all v1alpha1.ProjectList
	if err := projects.List(ctx, &all); err != nil {
		return World{}, fmt.Errorf("listing projects: %w", err)
	}
	var departments v1alpha1.DepartmentList
	if err := v.Cached.List(ctx, &departments); err != nil {
		return World{}, fmt.Errorf("listing departments: %w", err)
	}
	var pools v1alpha1.NodePoolList
	if err := v.Cached.List(ctx, &pools); err != nil {
		return World{}, fmt.Errorf("listing node pools: %w", err)
	}
	return World{Projects: all.Items, Departments: departments.Items, NodePools: pools.Items}, nil
}

// projectOf is the project that has a namespace; "" where none has.
func (w World) projectOf(namespace string) string {
	for i := range w.Projects {
		if w.Projects[i].NamespaceName() == namespace {
			return w.Projects[i].Name
		}
	}
	return ""
}

// projectsLeft refuses a deletion while there are projects of the department.
func projectsLeft(department *v1alpha1.Department, projects []v1alpha1.Project) error {
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
	return fmt.Errorf("it has %d projects: %s; delete them, or move them by their spec.department, first", len(names), promises.Few(names))
}
