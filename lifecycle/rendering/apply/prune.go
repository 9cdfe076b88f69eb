// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Remove takes back everything that was rendered for the place; for a place
// without a namespace what is cluster-wide. It asks the API server, since nothing
// comes after it that would find what a cache missed.
func (a *Applier) Remove(ctx context.Context, place Target) error {
	a.Cache.set(place, nil)
	var errs []error
	for _, k := range slices.Backward(supportedKinds) {
		if k.namespaced && place.Namespace == "" || !slices.Contains(k.subjects, place.Kind) || k.isQueue() && a.Queues.IsAbsent(k.GroupVersionKind) {
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
			errs = append(errs, a.deleteOwned(ctx, place, &list.Items[i]))
		}
	}
	return errors.Join(errs...)
}

// prune takes back what caches know of: what refers to others first, the quotas
// last. Each is looked at on the API server first, since a cache may be behind and
// does not know who applied it.
func (a *Applier) prune(ctx context.Context, place Target, objects map[objectKey]client.Object) error {
	var errs []error
	for _, k := range slices.Backward(slices.SortedFunc(maps.Keys(objects), objectKey.compare)) {
		there := &metav1.PartialObjectMetadata{}
		there.SetGroupVersionKind(supportedKinds[k.kind].GroupVersionKind)
		err := a.Live.Get(ctx, client.ObjectKeyFromObject(objects[k]), there)
		switch {
		case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("reading %s, which is not wanted any more: %w", k, err))
			continue
		}
		there.SetGroupVersionKind(supportedKinds[k.kind].GroupVersionKind)
		errs = append(errs, a.deleteOwned(ctx, place, there))
	}
	return errors.Join(errs...)
}

// deleteOwned deletes an object that bears the subject's labels and was applied by
// lifecycle, as it was looked at: none that took its name, or became another's.
func (a *Applier) deleteOwned(ctx context.Context, place Target, there *metav1.PartialObjectMetadata) error {
	for label, value := range place.labels() {
		if there.Labels[label] != value {
			return nil
		}
	}
	// A label that somebody changed makes nothing the subject's.
	if there.Namespace == "" && !place.allowsName(there.Name) || conflictingSubject(place, there) != "" {
		return nil
	}
	if !isAppliedByLifecycle(there) || there.DeletionTimestamp != nil {
		return nil
	}
	err := a.Client.Delete(ctx, there, client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking back %s: %w", describeObject(there), err)
	}
	return nil
}

// RemoveOrphans takes back what is left of a subject that is gone, should somebody
// have taken its finalizer off. The subject is an empty object of its kind.
func (a *Applier) RemoveOrphans(ctx context.Context, place Target, subject client.Object) error {
	present, err := a.listExisting(ctx, place)
	if err != nil || len(present) == 0 {
		return err
	}
	// A cache may not have heard yet of one that was made just now.
	err = a.Live.Get(ctx, client.ObjectKey{Name: place.Name}, subject)
	if !apierrors.IsNotFound(err) {
		return err
	}
	return a.prune(ctx, place, present)
}

// QueueLister is what is known of the queue kinds, whose CRDs may not be there.
type QueueLister interface {
	// IsWatched tells whether the API server serves the kind, and what lifecycle
	// rendered of it is known.
	IsWatched(kind schema.GroupVersionKind) bool
	// IsAbsent tells whether the API server said lately that it does not serve the kind.
	IsAbsent(kind schema.GroupVersionKind) bool
	// List are the objects of the kind that bear the subject's label. They are not to
	// be changed.
	List(kind schema.GroupVersionKind, subject SubjectKind, name string) []*metav1.PartialObjectMetadata
}

// listExisting has what was rendered for the place, as far as caches know.
func (a *Applier) listExisting(ctx context.Context, place Target) (map[objectKey]client.Object, error) {
	present := map[objectKey]client.Object{}
	for at, k := range supportedKinds {
		if k.isQueue() {
			for _, object := range a.Queues.List(k.GroupVersionKind, place.Kind, place.Name) {
				if object.Namespace == place.Namespace || !k.namespaced {
					present[objectKey{at, object.Name}] = object
				}
			}
			continue
		}
		if place.Namespace == "" {
			continue
		}
		objects := k.newList()
		if err := a.Client.List(ctx, objects, client.InNamespace(place.Namespace), client.MatchingLabels(place.labels())); err != nil {
			return nil, fmt.Errorf("listing each %s that was rendered in namespace %s: %w", k.Kind, place.Namespace, err)
		}
		err := meta.EachListItem(objects, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
				present[objectKey{at, object.GetName()}] = object
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing each %s: %w", k.Kind, err)
		}
	}
	return present, nil
}

// checkOwnership asks the API server whether there is somebody else's object of that name,
// which the fault is for people about.
func (a *Applier) checkOwnership(ctx context.Context, place Target, object *unstructured.Unstructured) (fault, err error) {
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(object.GroupVersionKind())
	err = a.Live.Get(ctx, client.ObjectKeyFromObject(object), there)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", describeObject(object), err)
	}
	there.SetGroupVersionKind(object.GroupVersionKind())
	return ownershipConflict(there, place), nil
}

// ownershipConflict is why an object that is there may not be taken for the place's subject;
// nil where it is the subject's, or was handed over to it.
func ownershipConflict(there *metav1.PartialObjectMetadata, place Target) error {
	if there.Annotations[v1alpha1.AnnotationAdoptBy] == place.Name {
		return nil
	}
	handOver := fmt.Sprintf("kubectl annotate %s %s %s=%s", kubectlResource(there), there.Name, v1alpha1.AnnotationAdoptBy, place.Name)
	if there.Namespace != "" {
		handOver += " --namespace " + there.Namespace
	}
	if other := conflictingSubject(place, there); other != "" {
		return fmt.Errorf("%s is there for %s; one of the two has to give it another name, or it is handed over with: %s", describeObject(there), other, handOver)
	}
	// One that lifecycle applied stays lifecycle's when its label is taken off.
	if there.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice || isAppliedByLifecycle(there) {
		return nil
	}
	return fmt.Errorf("%s is there and is not Sluice's; rename or delete it, or hand it over with: %s", describeObject(there), handOver)
}

// conflictingSubject is the subject that the object's labels name, where that is not the
// place's. A label that names one which cannot have the object, by its name or since
// the namespace is the project's, was changed by somebody.
func conflictingSubject(place Target, there *metav1.PartialObjectMetadata) string {
	for _, kind := range []SubjectKind{SubjectProject, SubjectDepartment, SubjectNodePool} {
		name := there.Labels[kind.Label()]
		if name == "" || kind == place.Kind && name == place.Name {
			continue
		}
		other := ClusterTarget(kind, name)
		if theirs := there.Namespace == "" && other.allowsName(there.Name); theirs || !isAppliedByLifecycle(there) {
			return other.String()
		}
	}
	return ""
}

// isAppliedByLifecycle tells whether lifecycle applied the object.
func isAppliedByLifecycle(there *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(there.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == v1alpha1.FieldManagerLifecycle && entry.Operation == metav1.ManagedFieldsOperationApply
	})
}

// kubectlResource is how kubectl calls the kind of an object.
func kubectlResource(there *metav1.PartialObjectMetadata) string {
	gvk := there.GroupVersionKind()
	name := strings.ToLower(gvk.Kind)
	if gvk.Group != "" {
		name += "." + gvk.Group
	}
	return name
}
