// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// ResolvedTarget is the object for which something is asked.
type ResolvedTarget struct {
	v1alpha1.ExtensionTarget
	// Namespace is where it is asked: the workload's, or the project's.
	Namespace string
}

// TargetReader is what a target is looked up in.
type TargetReader interface {
	client.Reader
	RESTMapper() meta.RESTMapper
}

// ResolveExtensionTarget finds the object that a person means by KIND/NAME, such as job/training
// or jobs.batch/training, in a namespace; project/NAME is a project. It fails for
// what is not there, and for what another object has made: only that one has a
// clock.
func ResolveExtensionTarget(ctx context.Context, c TargetReader, namespace, text string) (ResolvedTarget, error) {
	resource, name, err := parseTarget(text)
	if err != nil {
		return ResolvedTarget{}, err
	}
	kind, err := resolveKind(c.RESTMapper(), resource)
	if err != nil {
		return ResolvedTarget{}, err
	}
	target := ResolvedTarget{Namespace: namespace}
	target.APIVersion, target.Kind = kind.ToAPIVersionAndKind()
	target.Name = name
	if target.isProject() {
		var project v1alpha1.Project
		if err := c.Get(ctx, types.NamespacedName{Name: name}, &project); err != nil {
			return ResolvedTarget{}, fmt.Errorf("reading project %s: %w", name, err)
		}
		target.Namespace = project.NamespaceName()
		return target, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err = c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return ResolvedTarget{}, fmt.Errorf("there is no %s %s in namespace %s", kind.Kind, name, namespace)
	case apierrors.IsForbidden(err):
		return target, nil // who may ask need not be able to look
	case err != nil:
		return ResolvedTarget{}, fmt.Errorf("reading %s %s: %w", kind.Kind, name, err)
	}
	if owner := metav1.GetControllerOf(object); owner != nil {
		return ResolvedTarget{}, fmt.Errorf("%s %s was made by %s %s, whose time it is that counts: extend %s/%s",
			kind.Kind, name, owner.Kind, owner.Name, strings.ToLower(owner.Kind), owner.Name)
	}
	return target, nil
}

// isProject reports whether the target is a project, which is renewed.
func (t ResolvedTarget) isProject() bool {
	return t.Kind == "Project" && strings.HasPrefix(t.APIVersion, v1alpha1.Group+"/")
}

// parseTarget takes KIND/NAME apart.
func parseTarget(text string) (resource, name string, err error) {
	resource, name, found := strings.Cut(text, "/")
	if !found || resource == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q: want KIND/NAME, such as job/training or project/thesis", text)
	}
	return strings.ToLower(resource), name, nil
}

// resolveKind is the kind that a person means, as kubectl understands them: job, jobs,
// jobs.batch or jobs.v1.batch.
func resolveKind(mapper meta.RESTMapper, resource string) (schema.GroupVersionKind, error) {
	versioned, grouped := schema.ParseResourceArg(resource)
	if versioned != nil {
		if kind, err := mapper.KindFor(*versioned); err == nil {
			return kind, nil
		}
	}
	kind, err := mapper.KindFor(grouped.WithVersion(""))
	if err != nil {
		return kind, fmt.Errorf("kind %q: %w", resource, err)
	}
	return kind, nil
}
