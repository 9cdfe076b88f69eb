// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queuekinds

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

	"sluice.dev/lifecycle/render"
)

// Queue is what a controller has to do.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

const (
	// soon is for how long changes are gathered, in machine time: what was rendered
	// for one subject changes together.
	soon = 50 * time.Millisecond
	// made is for how long objects that come are: mostly the controller made them
	// itself.
	made = time.Second
)

// listener is a controller of one kind of subject.
type listener struct {
	ctx     context.Context
	subject render.SubjectKind
	queue   Queue
	all     func(context.Context) []reconcile.Request
}

// Source brings subjects of a kind back to their controller: one when something
// that was rendered for it is changed, taken away or made, and all when a kind of
// an engine comes or goes. The controller begins to work once it is known what
// there is.
func (w *Watch) Source(subject render.SubjectKind, all func(context.Context) []reconcile.Request) source.SyncingSource {
	return &subjectSource{w, subject, all}
}

type subjectSource struct {
	watch   *Watch
	subject render.SubjectKind
	all     func(context.Context) []reconcile.Request
}

// Start implements source.Source.
func (s *subjectSource) Start(ctx context.Context, queue Queue) error {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	s.watch.listeners = append(s.watch.listeners, listener{ctx, s.subject, queue, s.all})
	// What was there before: some of it may be nobody's any more.
	for _, watched := range s.watch.served {
		for _, object := range watched.GetStore().List() {
			Later(queue, metadataOf(object).Labels[s.subject.Label()], made)
		}
	}
	return nil
}

// WaitForSync implements source.SyncingSource.
func (s *subjectSource) WaitForSync(ctx context.Context) error {
	select {
	case <-s.watch.looked:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting until it is known which kinds are served: %w", ctx.Err())
	}
}

// changed tells the controllers whose subjects an object was or is rendered for.
// One that came or went has no other.
func (w *Watch) changed(before, after *metav1.PartialObjectMetadata) {
	if before != nil && after != nil && statusAlone(before, after) {
		return
	}
	after, wait := orElse(after, before), soon
	if before == nil {
		before, wait = after, made
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, l := range w.listeners {
		label := l.subject.Label()
		Later(l.queue, after.Labels[label], wait)
		if was := before.Labels[label]; was != after.Labels[label] {
			Later(l.queue, was, wait)
		}
	}
}

func orElse(object, other *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	if object == nil {
		return other
	}
	return object
}

// statusAlone tells whether nothing changed that lifecycle renders.
func statusAlone(before, after *metav1.PartialObjectMetadata) bool {
	return before.UID == after.UID && before.Generation == after.Generation &&
		before.DeletionTimestamp.IsZero() == after.DeletionTimestamp.IsZero() &&
		equality.Semantic.DeepEqual(before.Labels, after.Labels) &&
		equality.Semantic.DeepEqual(before.Annotations, after.Annotations)
}

// everything brings all subjects back.
func (w *Watch) everything() {
	w.mu.RLock()
	listeners := append([]listener(nil), w.listeners...)
	w.mu.RUnlock()
	for _, l := range listeners {
		if l.ctx.Err() != nil {
			continue
		}
		for _, request := range l.all(l.ctx) {
			Later(l.queue, request.Name, 0)
		}
	}
}

// Later asks for a subject to be looked at again, after the subjects that nobody
// has looked at yet; none where the name is empty.
func Later(queue Queue, name string, after time.Duration) {
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
