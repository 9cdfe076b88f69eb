// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extensions

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/tenant"
)

// owner is whose a namespace is. Both objects are the cache's, and never changed.
type owner struct {
	project    *v1alpha1.Project
	department *v1alpha1.Department
}

// ownerOf is whose the namespace is; nil where no project has it.
func ownerOf(ctx context.Context, cached client.Reader, namespace string) (*owner, error) {
	var projects v1alpha1.ProjectList
	if err := cached.List(ctx, &projects, client.MatchingFields{tenant.ProjectsByNamespace: namespace}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("finding the project of namespace %s: %w", namespace, err)
	}
	if len(projects.Items) == 0 {
		return nil, nil
	}
	o := &owner{project: &projects.Items[0], department: &v1alpha1.Department{}}
	if err := cached.Get(ctx, types.NamespacedName{Name: o.project.Spec.Department}, o.department); err != nil {
		return nil, fmt.Errorf("reading department %s of project %s: %w", o.project.Spec.Department, o.project.Name, err)
	}
	return o, nil
}
