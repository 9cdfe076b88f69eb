// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"
)

// queueInformer watches the objects of one queue kind.
type queueInformer struct {
	toolscache.SharedIndexInformer

	// registration reports whether the handlers have received the initial list.
	registration toolscache.ResourceEventHandlerRegistration
	// synced is set after that, under the lock of the QueueWatcher.
	synced bool
	// stop stops the informer and waits for its end.
	stop func()
}

// subjectIndex is the index of objects by subject.
const subjectIndex = "subject"

// startInformer starts the watch of a kind.
func (w *QueueWatcher) startInformer(ctx context.Context, resource schema.GroupVersionResource) *queueInformer {
	selector := labels.SelectorFromSet(ManagedLabels()).String()
	shared := metadatainformer.NewFilteredMetadataInformer(w.metadata, resource, metav1.NamespaceAll, 0,
		toolscache.Indexers{subjectIndex: subjectIndexKeys},
		func(options *metav1.ListOptions) { options.LabelSelector = selector },
	).Informer()
	_ = shared.SetTransform(stripManagedFields) // these two fail only after the start
	_ = shared.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		// A kind that is no longer served is no error: the next discovery removes it.
		if ctx.Err() == nil && !apierrors.IsNotFound(err) {
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})
	watched := &queueInformer{SharedIndexInformer: shared}
	watched.registration, _ = shared.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, _ bool) { w.handleChange(nil, objectMetadata(object)) },
		UpdateFunc: func(before, after any) { w.handleChange(objectMetadata(before), objectMetadata(after)) },
		DeleteFunc: func(object any) { w.handleChange(objectMetadata(object), nil) },
	})
	inner, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); shared.RunWithContext(inner) }()
	watched.stop = func() { cancel(); <-done }
	return watched
}

func (i *queueInformer) list(subject SubjectKind, name string) []*metav1.PartialObjectMetadata {
	found, err := i.GetIndexer().ByIndex(subjectIndex, subjectIndexKey(subject, name))
	if err != nil {
		return nil // the index exists from the start
	}
	objects := make([]*metav1.PartialObjectMetadata, 0, len(found))
	for _, object := range found {
		objects = append(objects, objectMetadata(object))
	}
	return objects
}

func subjectIndexKeys(object any) ([]string, error) {
	var keys []string
	for _, subject := range subjectKinds {
		if name := objectMetadata(object).Labels[subject.Label()]; name != "" {
			keys = append(keys, subjectIndexKey(subject, name))
		}
	}
	return keys, nil
}

func subjectIndexKey(subject SubjectKind, name string) string { return string(subject) + "/" + name }

// objectMetadata returns the object of an event, or the last known state of one whose
// deletion was missed.
func objectMetadata(object any) *metav1.PartialObjectMetadata {
	if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	if known, ok := object.(*metav1.PartialObjectMetadata); ok {
		return known
	}
	return &metav1.PartialObjectMetadata{}
}

// stripManagedFields saves memory: managed fields are read live where they are needed.
func stripManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}
