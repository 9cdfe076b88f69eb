// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Objects has an empty object of each kind that is bound here: what is to be
// watched, and of which a cache needs no more than what has [Ours].
func Objects() []client.Object {
	return []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}, &rbacv1.RoleBinding{}}
}

// Ours are the labels on everything that is bound here.
func Ours() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
}

// list has all objects with the mark, bindings first: a right goes before what
// says what it is.
func list(ctx context.Context, reader client.Reader, mark map[string]string) ([]client.Object, error) {
	var all []client.Object
	for _, objects := range []client.ObjectList{&rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.ClusterRoleList{}} {
		if err := reader.List(ctx, objects, client.MatchingLabels(mark)); err != nil {
			return nil, fmt.Errorf("listing what is bound for %s%s: %w", mark[v1alpha1.LabelProject], mark[v1alpha1.LabelDepartment], err)
		}
		err := meta.EachListItem(objects, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
				all = append(all, object)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing %T: %w", objects, err)
		}
	}
	return all, nil
}

// key names an object, for people too.
func key(object client.Object) string {
	switch object.(type) {
	case *rbacv1.ClusterRole:
		return "ClusterRole " + object.GetName()
	case *rbacv1.ClusterRoleBinding:
		return "ClusterRoleBinding " + object.GetName()
	default:
		return "RoleBinding " + object.GetName() + " in namespace " + object.GetNamespace()
	}
}
