// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// claim is the project's namespace, made where there was none, and how the
// project came by it; or why it cannot have it.
func (r *Reconciler) claim(ctx context.Context, project *v1alpha1.Project) (*corev1.Namespace, tenancy.Claim, *tenancy.Refusal, error) {
	var seen corev1.Namespace
	err := r.Client.Get(ctx, types.NamespacedName{Name: project.NamespaceName()}, &seen)
	switch {
	case apierrors.IsNotFound(err):
		// Where a cache is behind, the API server refuses to make a second one.
		namespace, refusal, err := r.tryMake(ctx, project)
		if namespace != nil || refusal != nil || !apierrors.IsAlreadyExists(err) {
			return namespace, tenancy.Make, refusal, err
		}
	case err != nil:
		return nil, "", nil, fmt.Errorf("reading namespace %s: %w", project.NamespaceName(), err)
	case keeps(project, &seen):
		claim, refusal := tenancy.Of(project, &seen)
		return &seen, claim, refusal, nil
	}
	namespace, err := r.namespace(ctx, project.NamespaceName())
	if err != nil {
		return nil, "", nil, err
	}
	if namespace == nil {
		namespace, refusal, err := r.tryMake(ctx, project)
		return namespace, tenancy.Make, refusal, err
	}
	claim, refusal := tenancy.Of(project, namespace)
	return namespace, claim, refusal, nil
}

// tryMake makes the namespace, where the project may have one of that name.
func (r *Reconciler) tryMake(ctx context.Context, project *v1alpha1.Project) (*corev1.Namespace, *tenancy.Refusal, error) {
	if _, refusal := tenancy.Of(project, nil); refusal != nil {
		return nil, refusal, nil
	}
	namespace, err := r.makeNamespace(ctx, project)
	return namespace, nil, err
}

// keeps tells whether the project has this namespace for good: by its UID, so that
// no annotation matters of which a cache does not know yet.
func keeps(project *v1alpha1.Project, namespace *corev1.Namespace) bool {
	return project.Status.Namespace != nil && project.Status.Namespace.UID == namespace.UID && namespace.DeletionTimestamp.IsZero()
}
