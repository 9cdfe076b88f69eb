// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// ProjectsByNamespace is the index by which the cache finds the project that has
// a namespace: a project that was outbid for its namespace has none.
const ProjectsByNamespace = "status.namespace.name"

// IndexProjects makes the index.
func IndexProjects(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &v1alpha1.Project{}, ProjectsByNamespace, func(object client.Object) []string {
		project, ok := object.(*v1alpha1.Project)
		if !ok || project.Status.Namespace == nil {
			return nil
		}
		return []string{project.Status.Namespace.Name}
	})
}
