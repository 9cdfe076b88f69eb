// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queuekinds

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"

	"sluice.dev/lifecycle/render"
)

// informer watches one kind.
type informer struct {
	toolscache.SharedIndexInformer

	// handled tells whether the handlers heard of all that there was at first.
	handled toolscache.ResourceEventHandlerRegistration
	// told is set once that is so, under the lock of the Watch.
	told bool
	// stop ends it, and returns when it has ended.
	stop func()
}

// bySubject is the index of the objects by whose they are.
const bySubject = "subject"

// watch begins to watch a kind.
func (w *Watch) watch(ctx context.Context, resource schema.GroupVersionResource) *informer {
	ours := labels.SelectorFromSet(render.Ours()).String()
	shared := metadatainformer.NewFilteredMetadataInformer(w.metadata, resource, metav1.NamespaceAll, 0,
		toolscache.Indexers{bySubject: subjectsOf},
		func(options *metav1.ListOptions) { options.LabelSelector = ours },
	).Informer()
	_ = shared.SetTransform(withoutManagedFields) // these two fail only once it was started
	_ = shared.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		// A kind that goes is no error: the next look finds that out.
		if ctx.Err() == nil && !apierrors.IsNotFound(err) {
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})
	watched := &informer{SharedIndexInformer: shared}
	watched.handled, _ = shared.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, _ bool) { w.changed(nil, metadataOf(object)) },
		UpdateFunc: func(before, after any) { w.changed(metadataOf(before), metadataOf(after)) },
		DeleteFunc: func(object any) { w.changed(metadataOf(object), nil) },
	})
	inner, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); shared.RunWithContext(inner) }()
	watched.stop = func() { cancel(); <-ended }
	return watched
}

func (i *informer) of(subject render.SubjectKind, name string) []*metav1.PartialObjectMetadata {
	found, err := i.GetIndexer().ByIndex(bySubject, indexed(subject, name))
	if err != nil {
		return nil // the index is there from the start
	}
	objects := make([]*metav1.PartialObjectMetadata, 0, len(found))
	for _, object := range found {
		objects = append(objects, metadataOf(object))
	}
	return objects
}

// subjects are the kinds of subjects that an object may have been rendered for.
var subjects = []render.SubjectKind{render.ForProject, render.ForDepartment, render.ForNodePool}

func subjectsOf(object any) ([]string, error) {
	var keys []string
	for _, subject := range subjects {
		if name := metadataOf(object).Labels[subject.Label()]; name != "" {
			keys = append(keys, indexed(subject, name))
		}
	}
	return keys, nil
}

func indexed(subject render.SubjectKind, name string) string { return string(subject) + "/" + name }

// metadataOf is the object of an event; of one that was missed, the last that was
// known.
func metadataOf(object any) *metav1.PartialObjectMetadata {
	if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	if known, ok := object.(*metav1.PartialObjectMetadata); ok {
		return known
	}
	return &metav1.PartialObjectMetadata{}
}

// withoutManagedFields saves the memory of what is asked anew where it is needed.
func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}
