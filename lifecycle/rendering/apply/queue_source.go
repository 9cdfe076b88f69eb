// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
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

// RequestQueue is what a controller has to do.
type RequestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

const (
	// changedObjectDelay is for how long changes are gathered, in machine time: what was rendered
	// for one subject changes together.
	changedObjectDelay = 50 * time.Millisecond
	// createdObjectDelay is for how long objects that come are: mostly the controller made them
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

// Source brings subjects of a kind back to their controller: one when something
// that was rendered for it is changed, taken away or made, and all when a kind of
// an engine comes or goes. The controller begins to work once it is known what
// there is.
func (w *QueueWatcher) Source(subject SubjectKind, all func(context.Context) []reconcile.Request) source.SyncingSource {
	return &queueSource{w, subject, all}
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
	// What was there before: some of it may be nobody's any more.
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
		return fmt.Errorf("waiting until it is known which kinds are served: %w", ctx.Err())
	}
}

// handleChange tells the controllers whose subjects an object was or is rendered for.
// One that came or went has no other.
func (w *QueueWatcher) handleChange(before, after *metav1.PartialObjectMetadata) {
	if before != nil && after != nil && onlyStatusChanged(before, after) {
		return
	}
	after, wait := firstNonNil(after, before), changedObjectDelay
	if before == nil {
		before, wait = after, createdObjectDelay
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, l := range w.listeners {
		label := l.subject.Label()
		EnqueueAfter(l.queue, after.Labels[label], wait)
		if was := before.Labels[label]; was != after.Labels[label] {
			EnqueueAfter(l.queue, was, wait)
		}
	}
}

func firstNonNil(object, other *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	if object == nil {
		return other
	}
	return object
}

// onlyStatusChanged tells whether nothing changed that lifecycle renders.
func onlyStatusChanged(before, after *metav1.PartialObjectMetadata) bool {
	return before.UID == after.UID && before.Generation == after.Generation &&
		before.DeletionTimestamp.IsZero() == after.DeletionTimestamp.IsZero() &&
		equality.Semantic.DeepEqual(before.Labels, after.Labels) &&
		equality.Semantic.DeepEqual(before.Annotations, after.Annotations)
}

// enqueueAll brings all subjects back.
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

// EnqueueAfter asks for a subject to be looked at again, after the subjects that nobody
// has looked at yet; none where the name is empty.
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
