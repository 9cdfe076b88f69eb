// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/tenancy"
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

// RevokeNamespace deletes the RoleBindings that members and other users created in the project's
// namespace. Those of an adopted namespace that are older than the project stay.
func (m *Manager) RevokeNamespace(ctx context.Context, project *v1alpha1.Project, namespace string) error {
	bindings := &metav1.PartialObjectMetadataList{}
	bindings.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBindingList"))
	if err := m.Live.List(ctx, bindings, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list the role bindings in namespace %s: %w", namespace, err)
	}
	since := tenancy.MembersSince(project)
	var errs []error
	for i := range bindings.Items {
		binding := &bindings.Items[i]
		if binding.CreationTimestamp.Before(&since) {
			continue
		}
		binding.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
		if err := m.deleteBinding(ctx, binding); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete role binding %s in namespace %s: %w", binding.Name, namespace, err))
		}
	}
	return errors.Join(errs...)
}

// deleteBinding deletes a RoleBinding without its finalizers, which would keep it in force. What refers to it as its owner
// stays: it could be a volume claim.
func (m *Manager) deleteBinding(ctx context.Context, binding *metav1.PartialObjectMetadata) error {
	isOthers := func(finalizer string) bool { return finalizer != metav1.FinalizerOrphanDependents }
	if before := binding.DeepCopy(); slices.ContainsFunc(binding.Finalizers, isOthers) {
		binding.Finalizers = slices.DeleteFunc(binding.Finalizers, isOthers)
		err := m.Client.Patch(ctx, binding, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err != nil {
			return err
		}
	}
	if binding.DeletionTimestamp != nil {
		return nil // Kubernetes removes the references to it
	}
	return m.Client.Delete(ctx, binding, client.PropagationPolicy(metav1.DeletePropagationOrphan), client.Preconditions{UID: &binding.UID})
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
