// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// World is what a project is judged by.
type World struct {
	// Department is the one that the project names; nil where there is none.
	Department *v1alpha1.Department
	// Namespace is the one that the project names; nil where there is none. Only a
	// new project's is known.
	Namespace *corev1.Namespace
	// Projects are all, of every department, the one as it was before among them.
	Projects []v1alpha1.Project
}

// world reads it; the projects from that reader.
func (v *Validator) world(ctx context.Context, projects client.Reader, before, project *v1alpha1.Project) (World, error) {
	var world World
	var department v1alpha1.Department
	switch found, err := read(ctx, v.Live, project.Spec.Department, &department); {
	case err != nil:
		return world, err
	case found:
		world.Department = &department
	}
	var all v1alpha1.ProjectList
	if err := projects.List(ctx, &all); err != nil {
		return world, fmt.Errorf("listing projects: %w", err)
	}
	world.Projects = all.Items
	if before != nil {
		return world, nil
	}
	var namespace corev1.Namespace
	switch found, err := read(ctx, v.Live, project.NamespaceName(), &namespace); {
	case err != nil:
		return world, err
	case found:
		world.Namespace = &namespace
	}
	return world, nil
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

// exists tells whether there is a project of that name already.
func (w World) exists(name string) bool {
	for i := range w.Projects {
		if w.Projects[i].Name == name {
			return true
		}
	}
	return false
}

// rival is another project that names the same namespace; "" where there is none.
// Two made at the same instant both pass; lifecycle lets the first of them have it.
func (w World) rival(project *v1alpha1.Project) string {
	for i := range w.Projects {
		other := &w.Projects[i]
		if other.Name != project.Name && other.NamespaceName() == project.NamespaceName() {
			return other.Name
		}
	}
	return ""
}

// projectOf is the project that has a namespace, this one's own included.
func (w World) projectOf(project *v1alpha1.Project) func(namespace string) string {
	return func(namespace string) string {
		if project.NamespaceName() == namespace {
			return project.Name
		}
		for i := range w.Projects {
			if w.Projects[i].NamespaceName() == namespace {
				return w.Projects[i].Name
			}
		}
		return ""
	}
}
