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
)

// IndexProjects makes the indices.
func IndexProjects(ctx context.Context, indexer client.FieldIndexer) error {
	indices := map[string]func(*v1alpha1.Project) string{
		ProjectsByNamespace:  (*v1alpha1.Project).NamespaceName,
		ProjectsByDepartment: func(p *v1alpha1.Project) string { return p.Spec.Department },
	}
	for name, key := range indices {
		err := indexer.IndexField(ctx, &v1alpha1.Project{}, name, func(object client.Object) []string {
			if project, ok := object.(*v1alpha1.Project); ok {
				return []string{key(project)}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("indexing projects by %s: %w", name, err)
		}
	}
	return nil
}
