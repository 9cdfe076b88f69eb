// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// The indices over Projects that the controllers' cache has.
const (
	// ProjectsByNamespace finds those that name a namespace, by default their own.
	ProjectsByNamespace = "namespaceName"
	// ProjectsByDepartment finds those of a department.
	ProjectsByDepartment = "spec.department"
	// ProjectsByNodePool finds those that have a quota in a node pool.
	ProjectsByNodePool = "spec.nodePools.name"
)

// IndexProjects makes the indices.
func IndexProjects(ctx context.Context, indexer client.FieldIndexer) error {
	indices := map[string]func(*v1alpha1.Project) []string{
		ProjectsByNamespace:  func(p *v1alpha1.Project) []string { return []string{p.NamespaceName()} },
		ProjectsByDepartment: func(p *v1alpha1.Project) []string { return []string{p.Spec.Department} },
		ProjectsByNodePool:   nodePoolsOf,
	}
	for name, key := range indices {
		err := indexer.IndexField(ctx, &v1alpha1.Project{}, name, func(object client.Object) []string {
			if project, ok := object.(*v1alpha1.Project); ok {
				return key(project)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("indexing projects by %s: %w", name, err)
		}
	}
	return nil
}

func nodePoolsOf(project *v1alpha1.Project) []string {
	names := make([]string, 0, len(project.Spec.NodePools))
	for _, quota := range project.Spec.NodePools {
		names = append(names, quota.Name)
	}
	return names
}
