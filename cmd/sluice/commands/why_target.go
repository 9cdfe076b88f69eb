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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// maxOwners limits the controllers above a pod that are followed.
const maxOwners = 8

// findRoot returns the root workload that KIND/NAME or NAME is or belongs to. The object is nil if
// it does not exist or may not be read.
func findRoot(ctx context.Context, c targetReader, namespace, text string) (v1alpha1.WorkloadReference, *unstructured.Unstructured, error) {
	if !strings.Contains(text, "/") {
		return findRootByName(ctx, c, namespace, text)
	}
	resource, name, err := parseTarget(text)
	if err != nil {
		return v1alpha1.WorkloadReference{}, nil, err
	}
	kind, err := resolveKind(c.RESTMapper(), resource)
	if err != nil {
		return v1alpha1.WorkloadReference{}, nil, err
	}
	if kind.Group == v1alpha1.Group {
		return v1alpha1.WorkloadReference{}, nil, fmt.Errorf("%q: want a workload, such as job/training; your projects are shown by sluice whoami", text)
	}
	object, err := getUnstructured(ctx, c, kind, namespace, name)
	if err != nil {
		return v1alpha1.WorkloadReference{}, nil, err
	}
	if object == nil {
		return newReference(kind, name), nil, nil
	}
	root := climb(ctx, c, object)
	return newReference(root.GroupVersionKind(), root.GetName()), root, nil
}

// findRootByName tries each kind of workload that the cluster serves.
func findRootByName(ctx context.Context, c targetReader, namespace, name string) (v1alpha1.WorkloadReference, *unstructured.Unstructured, error) {
	var roots []*unstructured.Unstructured
	for _, known := range workloadkind.All() {
		if known.Group == "kueue.x-k8s.io" {
			continue // its Workload represents another object
		}
		mapping, err := c.RESTMapper().RESTMapping(known.GroupKind)
		if err != nil {
			continue // the cluster does not serve it
		}
		object, err := getUnstructured(ctx, c, mapping.GroupVersionKind, namespace, name)
		if err != nil {
			return v1alpha1.WorkloadReference{}, nil, err
		}
		if object == nil {
			continue
		}
		root := climb(ctx, c, object)
		if !slices.ContainsFunc(roots, func(other *unstructured.Unstructured) bool { return other.GetUID() == root.GetUID() }) {
			roots = append(roots, root)
		}
	}
	switch len(roots) {
	case 0:
		return findClockByName(ctx, c, namespace, name)
	case 1:
		return newReference(roots[0].GroupVersionKind(), roots[0].GetName()), roots[0], nil
	}
	names := make([]string, 0, len(roots))
	for _, root := range roots {
		names = append(names, strings.ToLower(root.GetKind())+"/"+root.GetName())
	}
	return v1alpha1.WorkloadReference{}, nil, fmt.Errorf("%q: %d workloads of namespace %s have this name; name one of them: %s",
		name, len(roots), namespace, strings.Join(names, ", "))
}

// findClockByName finds a workload that no longer exists by its clock, the latest first.
func findClockByName(ctx context.Context, c targetReader, namespace, name string) (v1alpha1.WorkloadReference, *unstructured.Unstructured, error) {
	found := v1alpha1.WorkloadReference{Name: name}
	var latest metav1.Time
	list, err := listClocks(ctx, c, namespace, "")
	if apierrors.IsForbidden(err) {
		return found, nil, nil // the facts say so
	}
	for i := range list.clocks {
		clock := &list.clocks[i]
		if clock.Spec.Root.Name == name && !clock.CreationTimestamp.Before(&latest) {
			found, latest = clock.Spec.Root, clock.CreationTimestamp
		}
	}
	return found, nil, err
}

// getUnstructured returns an object, or nil if it does not exist or may not be read.
func getUnstructured(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", kind.Kind, name, err)
	}
	return object, nil
}

// climb follows the controllers of an object up to its root workload. A run of a CronJob is a root.
func climb(ctx context.Context, c client.Reader, object *unstructured.Unstructured) *unstructured.Unstructured {
	for range maxOwners {
		owner := metav1.GetControllerOf(object)
		if owner == nil || owner.Kind == "CronJob" {
			break
		}
		above, err := getUnstructured(ctx, c, schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind), object.GetNamespace(), owner.Name)
		if err != nil || above == nil || above.GetUID() != owner.UID {
			break
		}
		object = above
	}
	return object
}

func newReference(kind schema.GroupVersionKind, name string) v1alpha1.WorkloadReference {
	apiVersion, kindName := kind.ToAPIVersionAndKind()
	return v1alpha1.WorkloadReference{APIVersion: apiVersion, Kind: kindName, Name: name}
}
