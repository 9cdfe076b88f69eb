// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Manager makes the cluster have the rights that are wanted.
type Manager struct {
	// Client reads from a cache that has what lifecycle bound, and may have nothing
	// else of its kinds.
	Client client.Client
	// Live reads from the API server, to tell what is not there from what is
	// somebody else's.
	Live client.Reader
}

// Revoke takes back all that is bound for a project, before anything else of it
// goes. It asks the API server, since nothing comes after it that would find what a
// cache missed.
func (k *Manager) Revoke(ctx context.Context, project *v1alpha1.Project) error {
	present, err := listManaged(ctx, k.Live, projectLabels(project.Name))
	if err != nil {
		return err
	}
	return k.deleteObjects(ctx, present)
}

// reconcileObjects applies what is wanted and is not so, and takes back what has the mark and
// is not wanted. The faults are for people, the error is for another try. Where all
// is right it writes nothing and asks nobody.
func (k *Manager) reconcileObjects(ctx context.Context, mark map[string]string, wanted []client.Object) (faults []string, err error) {
	present, err := listManaged(ctx, k.Client, mark)
	if err != nil {
		return nil, err
	}
	for _, object := range wanted {
		at := slices.IndexFunc(present, func(there client.Object) bool { return describeObject(there) == describeObject(object) })
		var there client.Object
		if at >= 0 {
			there = present[at]
			present = slices.Delete(present, at, at+1)
		}
		if there != nil && isUpToDate(there, object) {
			continue
		}
		fault, err := k.applyObject(ctx, object, there)
		if err != nil {
			return nil, err
		}
		if fault != "" {
			faults = append(faults, fault)
		}
	}
	return faults, k.deleteObjects(ctx, present)
}

// applyObject applies one object; there is what the cache has of it, or nil.
func (k *Manager) applyObject(ctx context.Context, object, there client.Object) (fault string, err error) {
	if there == nil {
		foreign, err := k.isForeign(ctx, object)
		if err != nil {
			return "", err
		}
		if foreign {
			return describeObject(object) + " is there and is not Sluice's; rename or delete it", nil
		}
	} else if roleRefOf(there) != roleRefOf(object) {
		// What is bound cannot be changed; it is made anew when its end is heard of.
		return "", k.deleteObjects(ctx, []client.Object{there})
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", describeObject(object), err)
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	err = k.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content}),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return fmt.Sprintf("the API server refuses %s: %v", describeObject(object), err), nil
	case err != nil:
		return "", fmt.Errorf("applying %s: %w", describeObject(object), err)
	}
	return "", nil
}

// isForeign tells whether somebody else made an object of that name. One that
// lifecycle applied stays lifecycle's when its label is taken off.
func (k *Manager) isForeign(ctx context.Context, object client.Object) (bool, error) {
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	err := k.Live.Get(ctx, client.ObjectKeyFromObject(object), there)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", describeObject(object), err)
	}
	if there.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice {
		return false, nil
	}
	return !slices.ContainsFunc(there.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == v1alpha1.FieldManagerLifecycle && entry.Operation == metav1.ManagedFieldsOperationApply
	}), nil
}

func (k *Manager) deleteObjects(ctx context.Context, objects []client.Object) error {
	var errs []error
	for _, object := range objects {
		// The very object that was looked at, and none that took its name.
		uid := object.GetUID()
		if err := k.Client.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("taking back %s: %w", describeObject(object), err))
		}
	}
	return errors.Join(errs...)
}

// isUpToDate tells whether an object gives the rights that are wanted, and is marked.
func isUpToDate(there, wanted client.Object) bool {
	for label, value := range wanted.GetLabels() {
		if there.GetLabels()[label] != value {
			return false
		}
	}
	switch wanted := wanted.(type) {
	case *rbacv1.ClusterRole:
		there, ok := there.(*rbacv1.ClusterRole)
		return ok && there.AggregationRule == nil && equality.Semantic.DeepEqual(there.Rules, wanted.Rules)
	case *rbacv1.ClusterRoleBinding:
		there, ok := there.(*rbacv1.ClusterRoleBinding)
		return ok && there.RoleRef == wanted.RoleRef && equality.Semantic.DeepEqual(there.Subjects, wanted.Subjects)
	case *rbacv1.RoleBinding:
		there, ok := there.(*rbacv1.RoleBinding)
		return ok && there.RoleRef == wanted.RoleRef && equality.Semantic.DeepEqual(there.Subjects, wanted.Subjects)
	}
	return false
}

// roleRefOf is which role a binding binds, which never changes; zero for a role.
func roleRefOf(object client.Object) rbacv1.RoleRef {
	switch object := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		return object.RoleRef
	case *rbacv1.RoleBinding:
		return object.RoleRef
	}
	return rbacv1.RoleRef{}
}

// WatchedObjects has an empty object of each kind that is bound here: what is to be
// watched, and of which a cache needs no more than what has [Ours].
func WatchedObjects() []client.Object {
	return []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}, &rbacv1.RoleBinding{}}
}

// ManagedLabels are the labels on everything that is bound here.
func ManagedLabels() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
}

// listManaged has all objects with the mark, bindings first: a right goes before what
// says what it is.
func listManaged(ctx context.Context, reader client.Reader, mark map[string]string) ([]client.Object, error) {
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

// describeObject names an object, for people too.
func describeObject(object client.Object) string {
	switch object.(type) {
	case *rbacv1.ClusterRole:
		return "ClusterRole " + object.GetName()
	case *rbacv1.ClusterRoleBinding:
		return "ClusterRoleBinding " + object.GetName()
	default:
		return "RoleBinding " + object.GetName() + " in namespace " + object.GetNamespace()
	}
}
