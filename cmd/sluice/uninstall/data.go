// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
)

var crdKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// CountData returns what --delete-data would delete: the number of Sluice's objects, by kind.
func (u *Uninstaller) CountData(ctx context.Context) (lines []string, err error) {
	kinds, err := sluiceKinds()
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		count := 0
		if err := u.list(ctx, kind, func(*unstructured.Unstructured) { count++ }); err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%d %s", count, kind.Kind))
	}
	slices.Sort(lines)
	return append(lines, "the roles and role bindings of members: people lose access to their namespaces",
		"the namespaces sluice-system and sluice-agent"), nil
}

// findData finds Sluice's kinds, which have all its objects, the rights of people, and Sluice's own namespaces.
func (u *Uninstaller) findData(ctx context.Context) (actions []action, err error) {
	add := func(ours func(*unstructured.Unstructured) bool) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			if ours(o) && o.GetDeletionTimestamp() == nil {
				actions = append(actions, u.remove(o))
			}
		}
	}
	err = u.list(ctx, crdKind, add(isOwnCRD))
	if err != nil {
		return nil, err
	}
	for _, kind := range []string{"RoleBinding", "ClusterRoleBinding", "Role", "ClusterRole"} {
		ofLifecycle := func(o *unstructured.Unstructured) bool {
			return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice
		}
		if err := u.list(ctx, schema.GroupKind{Group: rbacv1.GroupName, Kind: kind}, add(ofLifecycle)); err != nil {
			return nil, err
		}
	}
	ownNamespace := func(o *unstructured.Unstructured) bool { return slices.Contains(componentNamespaces, o.GetName()) }
	err = u.list(ctx, schema.GroupKind{Kind: "Namespace"}, add(ownNamespace))
	return actions, err
}

func isOwnCRD(o *unstructured.Unstructured) bool {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	return group == v1alpha1.Group
}

// waitForData returns when Sluice's kinds are gone.
func (u *Uninstaller) waitForData(ctx context.Context) error {
	return u.waitFor(ctx, func(ctx context.Context) (waiting string, err error) {
		err = u.list(ctx, crdKind, func(o *unstructured.Unstructured) {
			if isOwnCRD(o) {
				waiting = "the deletion of " + o.GetName()
			}
		})
		return waiting, err
	})
}
