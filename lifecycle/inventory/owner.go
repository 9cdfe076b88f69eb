// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// ProjectOf is the project that has a namespace; nil where none has. The project's
// status says it: nothing that a workload's author writes. The reader is the
// controllers' cache, with the index [ProjectsByNamespace].
func ProjectOf(ctx context.Context, cached client.Reader, namespace string) (*v1alpha1.Project, error) {
	var projects v1alpha1.ProjectList
	if err := cached.List(ctx, &projects, client.MatchingFields{ProjectsByNamespace: namespace}); err != nil {
		return nil, fmt.Errorf("looking for the project of namespace %s: %w", namespace, err)
	}
	for i := range projects.Items {
		project := &projects.Items[i]
		if has := project.Status.Namespace; has != nil && has.Name == namespace {
			return project, nil
		}
	}
	return nil, nil
}

// Owner is whose a namespace is: the project that [ProjectOf] finds, and its
// department; nil where it is nobody's.
func Owner(ctx context.Context, cached client.Reader, namespace string) (*v1alpha1.Project, *v1alpha1.Department, error) {
	project, err := ProjectOf(ctx, cached, namespace)
	if project == nil || err != nil {
		return nil, nil, err
	}
	department := &v1alpha1.Department{}
	if err := cached.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, department); err != nil {
		return nil, nil, fmt.Errorf("reading department %s of project %s: %w", project.Spec.Department, project.Name, err)
	}
	return project, department, nil
}
