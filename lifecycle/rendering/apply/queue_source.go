// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// RequestQueue is the work queue of a controller.
type RequestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

const (
	// changedObjectDelay is the time for which changes of rendered objects are collected, in machine
	// time: those of one subject change together.
	changedObjectDelay = 50 * time.Millisecond
	// createdObjectDelay is that for new objects: mostly the controller created them
	// itself.
	createdObjectDelay = time.Second
)

// queueListener is a controller of one kind of subject.
type queueListener struct {
	ctx          context.Context
	subject      SubjectKind
	queue        RequestQueue
	listRequests func(context.Context) []reconcile.Request
}

// Source enqueues a subject when an object that was rendered for it changes, and all
// subjects of the kind when the API server begins or ends to serve a queue kind. The
// controller starts once the served kinds are known.
func (w *QueueWatcher) Source(subject SubjectKind, listRequests func(context.Context) []reconcile.Request) source.SyncingSource {
	return &queueSource{w, subject, listRequests}
}

type queueSource struct {
	watcher      *QueueWatcher
	subject      SubjectKind
	listRequests func(context.Context) []reconcile.Request
}

// Start implements source.Source.
func (s *queueSource) Start(ctx context.Context, queue RequestQueue) error {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	s.watcher.listeners = append(s.watcher.listeners, queueListener{ctx, s.subject, queue, s.listRequests})
	// Existing objects may be of subjects that are gone.
	for _, watched := range s.watcher.informers {
		for _, object := range watched.GetStore().List() {
			EnqueueAfter(queue, objectMetadata(object).Labels[s.subject.Label()], createdObjectDelay)
		}
	}
	return nil
}

// WaitForSync implements source.SyncingSource.
func (s *queueSource) WaitForSync(ctx context.Context) error {
	select {
	case <-s.watcher.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the discovery of queue kinds: %w", ctx.Err())
	}
}

// handleChange enqueues the subjects for which an object was or is rendered. Before is
// nil for a new object, after for a deleted one.
func (w *QueueWatcher) handleChange(before, after *metav1.PartialObjectMetadata) {
	if before != nil && after != nil && onlyStatusChanged(before, after) {
		return
	}
	after, delay := cmp.Or(after, before), changedObjectDelay
	if before == nil {
		before, delay = after, createdObjectDelay
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, l := range w.listeners {
		label := l.subject.Label()
		EnqueueAfter(l.queue, after.Labels[label], delay)
		if was := before.Labels[label]; was != after.Labels[label] {
			EnqueueAfter(l.queue, was, delay)
		}
	}
}

// onlyStatusChanged reports whether nothing changed that lifecycle renders.
func onlyStatusChanged(before, after *metav1.PartialObjectMetadata) bool {
	return before.UID == after.UID && before.Generation == after.Generation &&
		before.DeletionTimestamp.IsZero() == after.DeletionTimestamp.IsZero() &&
		equality.Semantic.DeepEqual(before.Labels, after.Labels) &&
		equality.Semantic.DeepEqual(before.Annotations, after.Annotations)
}

// enqueueAll enqueues all subjects.
func (w *QueueWatcher) enqueueAll() {
	w.mu.RLock()
	listeners := append([]queueListener(nil), w.listeners...)
	w.mu.RUnlock()
	for _, l := range listeners {
		if l.ctx.Err() != nil {
			continue
		}
		for _, request := range l.listRequests(l.ctx) {
			EnqueueAfter(l.queue, request.Name, 0)
		}
	}
}

// EnqueueAfter enqueues a subject with low priority: new subjects come first. It does
// nothing if the name is empty.
func EnqueueAfter(queue RequestQueue, name string, after time.Duration) {
	if name == "" {
		return
	}
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	if ordered, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		low := handler.LowPriority
		ordered.AddWithOpts(priorityqueue.AddOpts{After: after, Priority: &low}, request)
		return
	}
	queue.AddAfter(request, after)
}
