// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Remove takes back everything that was rendered for the place; for a place
// without a namespace what is cluster-wide. It asks the API server, since nothing
// comes after it that would find what a cache missed.
func (a *Applier) Remove(ctx context.Context, place Place) error {
	a.Memory.remember(place, nil)
	var errs []error
	for _, k := range slices.Backward(kinds) {
		if k.namespaced && place.Namespace == "" || !slices.Contains(k.of, place.Kind) || k.isQueue() && a.Queues.Absent(k.GroupVersionKind) {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
		options := []client.ListOption{client.MatchingLabels(place.labels())}
		if k.namespaced {
			options = append(options, client.InNamespace(place.Namespace))
		}
		err := a.Live.List(ctx, list, options...)
		if k.isQueue() && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)) {
			continue // the CRD is gone, and with it every object
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("listing each %s that was rendered for %s: %w", k.Kind, place, err))
			continue
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(k.GroupVersionKind)
			errs = append(errs, a.delete(ctx, place, &list.Items[i]))
		}
	}
	return errors.Join(errs...)
}

// takeBack takes back what caches know of: what refers to others first, the quotas
// last. Each is looked at on the API server first, since a cache may be behind and
// does not know who applied it.
func (a *Applier) takeBack(ctx context.Context, place Place, objects map[key]client.Object) error {
	var errs []error
	for _, k := range slices.Backward(slices.SortedFunc(maps.Keys(objects), key.compare)) {
		there := &metav1.PartialObjectMetadata{}
		there.SetGroupVersionKind(kinds[k.kind].GroupVersionKind)
		err := a.Live.Get(ctx, client.ObjectKeyFromObject(objects[k]), there)
		switch {
		case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("reading %s, which is not wanted any more: %w", k, err))
			continue
		}
		there.SetGroupVersionKind(kinds[k.kind].GroupVersionKind)
		errs = append(errs, a.delete(ctx, place, there))
	}
	return errors.Join(errs...)
}

// delete deletes an object that bears the subject's labels and was applied by
// lifecycle, as it was looked at: none that took its name, or became another's.
func (a *Applier) delete(ctx context.Context, place Place, there *metav1.PartialObjectMetadata) error {
	for label, value := range place.labels() {
		if there.Labels[label] != value {
			return nil
		}
	}
	// A label that somebody changed makes nothing the subject's.
	if there.Namespace == "" && !place.mayName(there.Name) || otherThan(place, there) != "" {
		return nil
	}
	if !appliedByUs(there) || there.DeletionTimestamp != nil {
		return nil
	}
	err := a.Client.Delete(ctx, there, client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking back %s: %w", at(there), err)
	}
	return nil
}

// RemoveOrphans takes back what is left of a subject that is gone, should somebody
// have taken its finalizer off. The subject is an empty object of its kind.
func (a *Applier) RemoveOrphans(ctx context.Context, place Place, subject client.Object) error {
	present, err := a.present(ctx, place)
	if err != nil || len(present) == 0 {
		return err
	}
	// A cache may not have heard yet of one that was made just now.
	err = a.Live.Get(ctx, client.ObjectKey{Name: place.Name}, subject)
	if !apierrors.IsNotFound(err) {
		return err
	}
	return a.takeBack(ctx, place, present)
}
