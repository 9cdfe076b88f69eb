// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/workloads"
)

// resolvedTarget is the object that an Extension is for.
type resolvedTarget struct {
	v1alpha1.ExtensionTarget
	// Namespace is the namespace of the workload or of the project.
	Namespace string
}

// targetReader reads objects and resolves their kinds.
type targetReader interface {
	client.Reader
	RESTMapper() meta.RESTMapper
}

// resolveExtensionTarget finds the workload KIND/NAME in a namespace. KIND is any
// name that kubectl accepts. It fails for a project, which is renewed, and for an
// object that a controller owns: only the owner has a clock.
func resolveExtensionTarget(ctx context.Context, c targetReader, namespace, text string) (resolvedTarget, error) {
	resource, name, err := parseTarget(text)
	if err != nil {
		return resolvedTarget{}, err
	}
	kind, err := workloads.ResolveKind(c.RESTMapper(), resource)
	if err != nil {
		return resolvedTarget{}, err
	}
	target := resolvedTarget{Namespace: namespace}
	target.APIVersion, target.Kind = kind.ToAPIVersionAndKind()
	target.Name = name
	if target.Kind == projectKind && kind.Group == v1alpha1.Group {
		return resolvedTarget{}, fmt.Errorf(`a project is renewed for a whole period: sluice renew project/%s --reason "..."`, name)
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err = c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return resolvedTarget{}, fmt.Errorf("%s %s not found in namespace %s", kind.Kind, name, namespace)
	case apierrors.IsForbidden(err):
		return target, nil // a user may create Extensions without reading workloads
	case err != nil:
		return resolvedTarget{}, fmt.Errorf("get %s %s: %w", kind.Kind, name, err)
	}
	if owner := metav1.GetControllerOf(object); owner != nil {
		return resolvedTarget{}, fmt.Errorf("%s %s belongs to %s %s, which has the clock: extend %s/%s",
			kind.Kind, name, owner.Kind, owner.Name, strings.ToLower(owner.Kind), owner.Name)
	}
	return target, nil
}

const projectKind = "Project"

// resolveProject finds the target of a renewal, project/NAME.
func resolveProject(ctx context.Context, c client.Reader, text string) (resolvedTarget, error) {
	project, err := getProject(ctx, c, text)
	if err != nil {
		return resolvedTarget{}, err
	}
	return resolvedTarget{
		Namespace:       project.NamespaceName(),
		ExtensionTarget: v1alpha1.ExtensionTarget{APIVersion: v1alpha1.GroupVersion.String(), Kind: projectKind, Name: project.Name},
	}, nil
}

// getProject reads the project project/NAME. Other kinds are not looked up: other software has kinds of this name, too.
func getProject(ctx context.Context, c client.Reader, text string) (*v1alpha1.Project, error) {
	resource, name, err := parseTarget(text)
	if err != nil {
		return nil, err
	}
	short, group, _ := strings.Cut(resource, ".")
	switch {
	case !slices.Contains([]string{"project", "projects", "slproj"}, short), group != "" && !strings.HasSuffix(group, v1alpha1.Group):
		return nil, fmt.Errorf("%q: want project/NAME; a workload gets more time with sluice extend %s --by 24h", text, text)
	}
	var project v1alpha1.Project
	if err := c.Get(ctx, types.NamespacedName{Name: name}, &project); err != nil {
		return nil, fmt.Errorf("get project %s: %w",
			name, explainForbidden(err, "owners, members and the administrators of the department may read it"))
	}
	return &project, nil
}

// parseTarget splits KIND/NAME.
func parseTarget(text string) (resource, name string, err error) {
	resource, name, found := strings.Cut(text, "/")
	if !found || resource == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q: want KIND/NAME, such as job/training", text)
	}
	return strings.ToLower(resource), name, nil
}
