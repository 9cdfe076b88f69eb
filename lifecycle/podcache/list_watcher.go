// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// activePodsSelector selects the pods that have not ended. A pod that ends leaves the
// selection, and the server sends a Deleted event.
const activePodsSelector = "status.phase!=Succeeded,status.phase!=Failed"

const (
	// pageTimeout limits the request for one page of a list, in machine time.
	pageTimeout = time.Minute
	// maxListAttempts limits the attempts of a list that expires between two pages.
	maxListAttempts = 3
)

// listWatcher lists and watches pods, and converts them to entries.
type listWatcher struct {
	client rest.Interface
	reader podReader
	// project returns a pod's values in the projections.
	project func(*corev1.Pod) []any
	// pageSize is the number of pods in a page.
	pageSize int64
}

// ListWithContext implements [cache.ListerWithContext] for servers that do not stream lists.
// It ignores the caller's options: not every server returns a list from its cache in pages.
func (s *listWatcher) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	var list *podEntryList
	var err error
	for range maxListAttempts {
		// The inconsistent continuation of an expired list would keep pods that ended.
		if list, err = s.listPages(ctx); !apierrors.IsResourceExpired(err) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return list, nil
}

// listPages reads a whole list, one page after another.
func (s *listWatcher) listPages(ctx context.Context) (*podEntryList, error) {
	var all podEntryList
	options := metav1.ListOptions{FieldSelector: activePodsSelector, Limit: s.pageSize}
	for {
		var pods corev1.PodList
		err := s.client.Get().Resource("pods").VersionedParams(&options, scheme.ParameterCodec).
			Timeout(pageTimeout).Do(ctx).Into(&pods)
		if err != nil {
			return nil, err
		}
		for i := range pods.Items {
			if p, ok := s.reader.read(&pods.Items[i]); ok {
				all.Items = append(all.Items, &podEntry{pod: p, values: s.project(&pods.Items[i]), resourceVersion: pods.Items[i].ResourceVersion})
			}
		}
		all.ResourceVersion = pods.ResourceVersion
		if options.Continue = pods.Continue; options.Continue == "" {
			return &all, nil
		}
	}
}

// WatchWithContext implements [cache.WatcherWithContext].
func (s *listWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch, options.FieldSelector = true, activePodsSelector
	pods, err := s.client.Get().Resource("pods").VersionedParams(&options, scheme.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, err
	}
	return newTranslatedWatch(pods, s.translateEvent), nil
}

// List implements [cache.Lister]. A reflector does not call it.
func (s *listWatcher) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch implements [cache.Watcher]. A reflector does not call it.
func (s *listWatcher) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// translateEvent converts an event of a pod to one of an entry. It returns false for an
// event that must be dropped.
func (s *listWatcher) translateEvent(event watch.Event) (watch.Event, bool) {
	if event.Type == watch.Error {
		return event, true
	}
	pod, ok := event.Object.(*corev1.Pod)
	if !ok { // ends the watch with an error that names the object
		return watch.Event{Type: watch.Error, Object: event.Object}, true
	}
	e := &podEntry{resourceVersion: strings.Clone(pod.ResourceVersion)}
	switch event.Type {
	case watch.Bookmark:
		e.initialEventsEnd = pod.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		return watch.Event{Type: watch.Bookmark, Object: e}, true
	case watch.Added, watch.Modified:
		if e.pod, ok = s.reader.read(pod); ok {
			e.values = s.project(pod)
			return watch.Event{Type: event.Type, Object: e}, true
		}
		if event.Type == watch.Added {
			return event, false
		}
	}
	// The pod was deleted, or requests no GPU any more.
	e.pod = compactPod{namespace: unique.Make(pod.Namespace), name: pod.Name}
	return watch.Event{Type: watch.Deleted, Object: e}, true
}

// translatedWatch is a watch whose events are translated. Unlike [watch.Filter] it ends when
// it is stopped, even if its last event is not received.
type translatedWatch struct {
	from      watch.Interface
	translate func(watch.Event) (watch.Event, bool)
	out       chan watch.Event
	stop      sync.Once
	stopped   chan struct{}
}

func newTranslatedWatch(from watch.Interface, translate func(watch.Event) (watch.Event, bool)) watch.Interface {
	t := &translatedWatch{from: from, translate: translate, out: make(chan watch.Event), stopped: make(chan struct{})}
	go t.run()
	return t
}

// ResultChan implements [watch.Interface].
func (t *translatedWatch) ResultChan() <-chan watch.Event { return t.out }

// Stop implements [watch.Interface].
func (t *translatedWatch) Stop() {
	t.stop.Do(func() { close(t.stopped) })
	t.from.Stop()
}

func (t *translatedWatch) run() {
	defer close(t.out)
	for event := range t.from.ResultChan() {
		event, ok := t.translate(event)
		if !ok {
			continue
		}
		select {
		case t.out <- event:
		case <-t.stopped:
			return
		}
	}
}

// podEntry is a compactPod as an object of a reflector, which holds the entries of all pods
// until the first list is complete.
type podEntry struct {
	pod             compactPod
	values          []any
	resourceVersion string
	// initialEventsEnd is true for the bookmark after the initial events.
	initialEventsEnd bool
}

// GetObjectKind implements [runtime.Object].
func (e *podEntry) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (e *podEntry) DeepCopyObject() runtime.Object { c := *e; return &c }

// GetObjectMeta implements [metav1.ObjectMetaAccessor] with the fields that a reflector
// reads. It builds them on each call, because they are larger than the entry.
func (e *podEntry) GetObjectMeta() metav1.Object {
	meta := &metav1.ObjectMeta{Name: e.pod.name, ResourceVersion: e.resourceVersion}
	if e.pod.namespace != (interned{}) {
		meta.Namespace = e.pod.namespace.Value()
	}
	if e.initialEventsEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return meta
}

// podEntryList is a list of entries.
type podEntryList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*podEntry
}

// DeepCopyObject implements [runtime.Object].
func (l *podEntryList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = append([]*podEntry(nil), l.Items...)
	return &c
}

// reflectorStore adapts the Store to a reflector.
type reflectorStore struct{ store *Store }

// Add implements [cache.ReflectorStore].
func (s reflectorStore) Add(object any) error { return s.upsert(object) }

// Update implements [cache.ReflectorStore].
func (s reflectorStore) Update(object any) error { return s.upsert(object) }

func (s reflectorStore) upsert(object any) error {
	e, err := podEntryOf(object)
	if err == nil {
		s.store.upsert(&e.pod, e.values...)
	}
	return err
}

// Delete implements [cache.ReflectorStore].
func (s reflectorStore) Delete(object any) error {
	e, err := podEntryOf(object)
	if err == nil {
		s.store.remove(e.pod.key())
	}
	return err
}

// Replace implements [cache.ReflectorStore].
func (s reflectorStore) Replace(list []any, _ string) error {
	all := make([]*podEntry, len(list))
	for i, object := range list {
		var err error
		if all[i], err = podEntryOf(object); err != nil {
			return err
		}
	}
	s.store.replaceAll(all)
	s.store.markSynced()
	return nil
}

// Resync implements [cache.ReflectorStore]. It does nothing.
func (s reflectorStore) Resync() error { return nil }

func podEntryOf(object any) (*podEntry, error) {
	if e, ok := object.(*podEntry); ok {
		return e, nil
	}
	return nil, fmt.Errorf("podcache: unexpected %T in the stream of pods", object)
}
