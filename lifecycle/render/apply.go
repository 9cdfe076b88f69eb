// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Applier makes the cluster have what is wanted. What is there already is
// applied again at no cost but the request's: the API server writes nothing.
type Applier struct {
	// Client reads from a cache that has what lifecycle rendered, and may have
	// nothing else of its kinds.
	Client client.Client
	// Live reads from the API server, to tell what is not there from what is
	// somebody else's.
	Live client.Reader
}

// Applied is what is there after an Apply.
type Applied struct {
	// Quotas are the ResourceQuotas among what is wanted, as the API server
	// answered.
	Quotas []corev1.ResourceQuota
	// Faults are what could not be had, those of the Wanted included.
	Faults []Fault
}

// Apply applies what is wanted, and takes back what was rendered for the place
// and is not wanted any more; nothing is taken back while there are faults. The
// error is for another try.
func (a *Applier) Apply(ctx context.Context, place Place, wanted Wanted) (Applied, error) {
	present, err := list(ctx, a.Client, place)
	if err != nil {
		return Applied{}, err
	}
	applied := Applied{Faults: wanted.Faults}
	for _, object := range wanted.Objects {
		k, quota := key(object), object.GroupVersionKind() == quotaKind
		_, known := present[k]
		delete(present, k)
		fault, err := a.apply(ctx, object, known)
		if err != nil {
			return Applied{}, err
		}
		if fault != nil {
			applied.Faults = append(applied.Faults, Fault{Quota: quota, Err: fault})
			continue
		}
		if quota {
			var there corev1.ResourceQuota
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &there); err != nil {
				return Applied{}, fmt.Errorf("reading the API server's answer for %s: %w", k, err)
			}
			applied.Quotas = append(applied.Quotas, there)
		}
	}
	if len(applied.Faults) > 0 {
		return applied, nil
	}
	return applied, a.remove(ctx, present)
}

// apply applies one object; the fault is for people.
func (a *Applier) apply(ctx context.Context, object *unstructured.Unstructured, known bool) (fault, err error) {
	name := key(object)
	if !known {
		foreign, err := a.foreign(ctx, object)
		if err != nil {
			return nil, err
		}
		if foreign {
			return fmt.Errorf("%s in namespace %s is there and is not Sluice's; rename or delete it", name, object.GetNamespace()), nil
		}
	}
	wanted := object.DeepCopy()
	err = a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		if there, _ := a.live(ctx, wanted); there != nil {
			if fault, err := a.scoped(ctx, wanted, there); fault != nil || err != nil {
				return fault, err
			}
		}
		return fmt.Errorf("the API server refuses %s: %w", name, err), nil
	case err != nil:
		return nil, fmt.Errorf("applying %s in namespace %s: %w", name, object.GetNamespace(), err)
	}
	return a.scoped(ctx, wanted, object)
}

// foreign tells whether somebody else made an object of that name. One that
// lifecycle applied stays lifecycle's when its label is taken off.
func (a *Applier) foreign(ctx context.Context, object *unstructured.Unstructured) (bool, error) {
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(object.GroupVersionKind())
	err := a.Live.Get(ctx, client.ObjectKeyFromObject(object), there)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s in namespace %s: %w", key(object), object.GetNamespace(), err)
	}
	if there.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice {
		return false, nil
	}
	for _, entry := range there.ManagedFields {
		if entry.Manager == v1alpha1.FieldManagerLifecycle && entry.Operation == metav1.ManagedFieldsOperationApply {
			return false, nil
		}
	}
	return true, nil
}

// Remove takes back everything that was rendered for the place. It asks the API
// server, since nothing comes after it that would find what a cache missed.
func (a *Applier) Remove(ctx context.Context, place Place) error {
	present, err := list(ctx, a.Live, place)
	if err != nil {
		return err
	}
	return a.remove(ctx, present)
}

// list has what was rendered for the place, by key.
func list(ctx context.Context, reader client.Reader, place Place) (map[string]client.Object, error) {
	present := map[string]client.Object{}
	for _, k := range kinds {
		objects := k.list()
		if err := reader.List(ctx, objects, client.InNamespace(place.Namespace), client.MatchingLabels(place.labels())); err != nil {
			return nil, fmt.Errorf("listing each %s that was rendered in namespace %s: %w", k.Kind, place.Namespace, err)
		}
		err := meta.EachListItem(objects, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
				present[k.Kind+" "+object.GetName()] = object
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing each %s: %w", k.Kind, err)
		}
	}
	return present, nil
}

func (a *Applier) remove(ctx context.Context, objects map[string]client.Object) error {
	var errs []error
	for name, object := range objects {
		// The very object that was looked at, and none that took its name.
		uid := object.GetUID()
		err := a.Client.Delete(ctx, object, client.Preconditions{UID: &uid})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("taking back %s in namespace %s: %w", name, object.GetNamespace(), err))
		}
	}
	return errors.Join(errs...)
}
