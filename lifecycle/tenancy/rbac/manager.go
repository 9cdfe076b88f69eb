// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// Manager applies and revokes roles and bindings.
type Manager struct {
	// Client reads from a cache that has at least the objects with apply.ManagedLabels.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
}

// kinds are the kinds of roles and bindings, in the order in which they are applied.
// They are deleted in reverse: a binding goes before its role. The API server adds no
// defaults to any.
var kinds = []apply.Kind{
	{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), NoDefaults: true,
		New:     func() client.Object { return &rbacv1.ClusterRole{} },
		NewList: func() client.ObjectList { return &rbacv1.ClusterRoleList{} },
		Content: func(object client.Object) any {
			role := object.(*rbacv1.ClusterRole)
			return []any{role.Rules, role.AggregationRule}
		},
	},
	{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), NoDefaults: true,
		New:     func() client.Object { return &rbacv1.ClusterRoleBinding{} },
		NewList: func() client.ObjectList { return &rbacv1.ClusterRoleBindingList{} },
		Content: func(object client.Object) any {
			binding := object.(*rbacv1.ClusterRoleBinding)
			return []any{binding.RoleRef, binding.Subjects}
		},
		Immutable: func(object client.Object) any { return object.(*rbacv1.ClusterRoleBinding).RoleRef },
	},
	{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), Namespaced: true, NoDefaults: true,
		New:     func() client.Object { return &rbacv1.RoleBinding{} },
		NewList: func() client.ObjectList { return &rbacv1.RoleBindingList{} },
		Content: func(object client.Object) any {
			binding := object.(*rbacv1.RoleBinding)
			return []any{binding.RoleRef, binding.Subjects}
		},
		Immutable: func(object client.Object) any { return object.(*rbacv1.RoleBinding).RoleRef },
	},
}

// WatchedObjects returns an empty object of each kind that is applied. A cache needs
// only those with apply.ManagedLabels.
func WatchedObjects() []client.Object {
	objects := make([]client.Object, 0, len(kinds))
	for _, kind := range kinds {
		objects = append(objects, kind.New())
	}
	return objects
}

// projectSet and departmentSet return the objects of one project or department, in all
// namespaces.
func projectSet(name string) apply.Set {
	return apply.Set{Owner: "project " + name, Labels: projectLabels(name), Kinds: kinds}
}

func departmentSet(name string) apply.Set {
	return apply.Set{Owner: "department " + name, Labels: departmentLabels(name), Kinds: kinds}
}

func (m *Manager) applier() *apply.Applier { return &apply.Applier{Client: m.Client, Live: m.Live} }

// Revoke deletes all roles and bindings of a project.
func (m *Manager) Revoke(ctx context.Context, project *v1alpha1.Project) error {
	return m.applier().RemoveSet(ctx, projectSet(project.Name))
}

// reconcileObjects applies the desired objects of a set and deletes the others. It
// deletes them also when an object could not be applied.
func (m *Manager) reconcileObjects(ctx context.Context, set apply.Set, desired []client.Object) ([]apply.Failure, error) {
	objects := make([]*unstructured.Unstructured, 0, len(desired))
	for _, object := range desired {
		content, err := apply.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		objects = append(objects, content)
	}
	result, err := m.applier().ApplySet(ctx, set, objects)
	if err != nil {
		return nil, err
	}
	return result.Failures, m.applier().Prune(ctx, set, result)
}
