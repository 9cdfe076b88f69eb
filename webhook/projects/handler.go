// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
)

// Validator judges Projects.
type Validator struct {
	// Cached reads Projects and Departments.
	Cached client.Reader
	// Live reads from the API server: a department that was made a moment ago,
	// and a namespace, whose annotations decide who may have it.
	Live client.Reader
}

var _ admission.Validator[*v1alpha1.Project] = (*Validator)(nil)

// Handler is the validator as the webhook serves it.
func (v *Validator) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator.
func (v *Validator) ValidateCreate(ctx context.Context, project *v1alpha1.Project) (admission.Warnings, error) {
	return nil, v.validate(ctx, project, true)
}

// ValidateUpdate implements admission.Validator.
func (v *Validator) ValidateUpdate(ctx context.Context, _, project *v1alpha1.Project) (admission.Warnings, error) {
	return nil, v.validate(ctx, project, false)
}

// ValidateDelete implements admission.Validator: a project may always be deleted.
func (v *Validator) ValidateDelete(context.Context, *v1alpha1.Project) (admission.Warnings, error) {
	return nil, nil
}

func (v *Validator) validate(ctx context.Context, project *v1alpha1.Project, isNew bool) error {
	world, err := v.world(ctx, project, isNew)
	if err != nil {
		return err
	}
	if errs := Validate(project, isNew, world); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.Group, Kind: "Project"}, project.Name, errs)
	}
	return nil
}

func (v *Validator) world(ctx context.Context, project *v1alpha1.Project, isNew bool) (World, error) {
	var world World
	var department v1alpha1.Department
	switch found, err := read(ctx, v.Live, project.Spec.Department, &department); {
	case err != nil:
		return world, err
	case found:
		world.Department = &department
	}
	if !isNew {
		return world, nil
	}
	var namespace corev1.Namespace
	switch found, err := read(ctx, v.Live, project.NamespaceName(), &namespace); {
	case err != nil:
		return world, err
	case found:
		world.Namespace = &namespace
	}
	var err error
	if world.Exists, err = read(ctx, v.Cached, project.Name, &v1alpha1.Project{}); err != nil {
		return world, err
	}
	world.Rival, err = v.rival(ctx, project)
	return world, err
}

// rival finds another project that names the same namespace. Two made at the
// same instant both pass; lifecycle lets the first of them have it.
func (v *Validator) rival(ctx context.Context, project *v1alpha1.Project) (string, error) {
	var projects v1alpha1.ProjectList
	if err := v.Cached.List(ctx, &projects); err != nil {
		return "", fmt.Errorf("listing projects: %w", err)
	}
	for i := range projects.Items {
		other := &projects.Items[i]
		if other.Name != project.Name && other.NamespaceName() == project.NamespaceName() {
			return other.Name, nil
		}
	}
	return "", nil
}

func read(ctx context.Context, reader client.Reader, name string, into client.Object) (bool, error) {
	err := reader.Get(ctx, types.NamespacedName{Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	return true, nil
}
