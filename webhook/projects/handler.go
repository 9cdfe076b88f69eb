// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/access"
)

// Validator judges Projects.
type Validator struct {
	// Cached reads Projects.
	Cached client.Reader
	// Live reads from the API server: a department as it is now, a namespace, whose
	// annotations decide who may have it, and all Projects before anybody is refused
	// for what another of them has.
	Live client.Reader
	// Writers knows who administers departments, and who manages projects.
	Writers access.Writers
}

var _ admission.Validator[*v1alpha1.Project] = (*Validator)(nil)

// Handler is the validator as the webhook serves it.
func (v *Validator) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator.
func (v *Validator) ValidateCreate(ctx context.Context, project *v1alpha1.Project) (admission.Warnings, error) {
	return v.judge(ctx, nil, project)
}

// ValidateUpdate implements admission.Validator.
func (v *Validator) ValidateUpdate(ctx context.Context, before, project *v1alpha1.Project) (admission.Warnings, error) {
	return v.judge(ctx, before, project)
}

// ValidateDelete implements admission.Validator. The API server judges deletions by
// itself, so that they do not wait for the webhook: it is never asked.
func (v *Validator) ValidateDelete(context.Context, *v1alpha1.Project) (admission.Warnings, error) {
	return nil, nil
}

func (v *Validator) judge(ctx context.Context, before, project *v1alpha1.Project) (admission.Warnings, error) {
	authority, err := v.authority(ctx, before, project)
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
		world, err := v.world(ctx, projects, before, project)
		if err != nil {
			return nil, err
		}
		var warnings []string
		if errs, warnings = Validate(before, project, authority, world); len(errs) == 0 {
			return warnings, nil
		}
	}
	return nil, apierrors.NewInvalid(kind, project.Name, errs)
}
