// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// QueueLister lists objects of queue kinds, whose CRDs may not be installed.
type QueueLister interface {
	// IsWatched reports whether the API server serves the kind and its objects are known.
	IsWatched(kind schema.GroupVersionKind) bool
	// IsAbsent reports whether the API server does not serve the kind.
	IsAbsent(kind schema.GroupVersionKind) bool
	// List returns the objects of the kind with the subject's label. The caller must
	// not change them.
	List(kind schema.GroupVersionKind, subject SubjectKind, name string) []*metav1.PartialObjectMetadata
}

// listExisting returns the objects of the set that caches know.
func (a *Applier) listExisting(ctx context.Context, set Set) (map[objectKey]client.Object, error) {
	existing := map[objectKey]client.Object{}
	for _, kind := range set.Kinds {
		if kind.isQueue() {
			for _, object := range a.Queues.List(kind.GroupVersionKind, set.target.Kind, set.target.Name) {
				if object.Namespace == set.Namespace || !kind.Namespaced {
					existing[objectKey{kind.GroupVersionKind, object.Namespace, object.Name}] = object
				}
			}
			continue
		}
		objects := kind.NewList()
		if err := a.Client.List(ctx, objects, set.listOptions(kind)...); err != nil {
			return nil, fmt.Errorf("list each %s of %s: %w", kind.Kind, set.Owner, err)
		}
		err := meta.EachListItem(objects, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
				existing[objectKey{kind.GroupVersionKind, object.GetNamespace(), object.GetName()}] = object
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list each %s of %s: %w", kind.Kind, set.Owner, err)
		}
	}
	return existing, nil
}

func (s Set) listOptions(kind Kind) []client.ListOption {
	options := []client.ListOption{client.MatchingLabels(s.Labels)}
	if kind.Namespaced && s.Namespace != "" {
		options = append(options, client.InNamespace(s.Namespace))
	}
	return options
}

// Prune deletes the objects of the set that were not desired in the ApplySet of this
// result. It reads each from the API server first, since a cache may be behind and
// does not have the field managers.
func (a *Applier) Prune(ctx context.Context, set Set, result Result) error {
	var errs []error
	for _, key := range slices.Backward(slices.SortedFunc(maps.Keys(result.obsolete), set.compare)) {
		existing := &metav1.PartialObjectMetadata{}
		existing.SetGroupVersionKind(key.GroupVersionKind)
		err := a.Live.Get(ctx, client.ObjectKey{Namespace: key.namespace, Name: key.name}, existing)
		switch {
		case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("read %s, which is no longer desired: %w", key, err))
			continue
		}
		existing.SetGroupVersionKind(key.GroupVersionKind)
		errs = append(errs, a.deleteOwned(ctx, set, existing))
	}
	return errors.Join(errs...)
}

// RemoveSet deletes all objects of a set. It lists them on the API server, since no
// later pass would find what a cache missed.
func (a *Applier) RemoveSet(ctx context.Context, set Set) error {
	a.Cache.set(set.Owner, nil)
	var errs []error
	for _, kind := range slices.Backward(set.Kinds) {
		if kind.isQueue() && a.Queues.IsAbsent(kind.GroupVersionKind) {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := a.Live.List(ctx, list, set.listOptions(kind)...)
		if kind.isQueue() && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)) {
			continue // the CRD is gone, and with it every object
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("list each %s of %s: %w", kind.Kind, set.Owner, err))
			continue
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind.GroupVersionKind)
			errs = append(errs, a.deleteOwned(ctx, set, &list.Items[i]))
		}
	}
	return errors.Join(errs...)
}

// deleteOwned deletes an object that has the set's labels, in exactly the version
// that was read.
func (a *Applier) deleteOwned(ctx context.Context, set Set, existing *metav1.PartialObjectMetadata) error {
	if !containsAll(existing.Labels, set.Labels) || existing.DeletionTimestamp != nil || set.MayDelete != nil && !set.MayDelete(existing) {
		return nil
	}
	err := a.Client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID, ResourceVersion: &existing.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", describeObject(existing), err)
	}
	return nil
}
