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

// activePodsSelector selects the pods that have not ended. One that ends leaves the
// selection, and the server then says that it was deleted.
const activePodsSelector = "status.phase!=Succeeded,status.phase!=Failed"

const (
	// pageTimeout is how long a page of a list may take, in machine time.
	pageTimeout = time.Minute
	// maxListAttempts is how often a list is begun anew that grew too old between two of
	// its pages.
	maxListAttempts = 3
)

// listWatcher lists and watches pods, and passes on entries.
type listWatcher struct {
	client rest.Interface
	reader podReader
	// pageSize is how many pods are decoded at a time.
	pageSize int64
}

// ListWithContext implements [cache.ListerWithContext]. It is asked where the
// server does not stream lists. A list from the server's cache cannot be had in
// pages from every server, so the options are not the caller's.
func (s *listWatcher) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	var list *podEntryList
	var err error
	for range maxListAttempts {
		// To go on with an expired list in the server's inconsistent way would keep
		// pods that ended in between.
		if list, err = s.listPages(ctx); !apierrors.IsResourceExpired(err) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
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
			if f, ok := s.reader.read(&pods.Items[i]); ok {
				all.Items = append(all.Items, &podEntry{pod: f, resourceVersion: pods.Items[i].ResourceVersion})
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

// List implements [cache.Lister], which a reflector does not use.
func (s *listWatcher) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch implements [cache.Watcher], which a reflector does not use.
func (s *listWatcher) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// translateEvent is an event of a pod as one of an entry, and false for what is not
// to be passed on.
func (s *listWatcher) translateEvent(event watch.Event) (watch.Event, bool) {
	if event.Type == watch.Error {
		return event, true
	}
	pod, ok := event.Object.(*corev1.Pod)
	if !ok { // ends the watch, with an error that tells what came
		return watch.Event{Type: watch.Error, Object: event.Object}, true
	}
	e := &podEntry{resourceVersion: strings.Clone(pod.ResourceVersion)}
	switch event.Type {
	case watch.Bookmark:
		e.initialEventsEnd = pod.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		return watch.Event{Type: watch.Bookmark, Object: e}, true
	case watch.Added, watch.Modified:
		if e.pod, ok = s.reader.read(pod); ok {
			return watch.Event{Type: event.Type, Object: e}, true
		}
		if event.Type == watch.Added {
			return event, false
		}
	}
	// It has gone, or is none of ours any more.
	e.pod = compactPod{namespace: unique.Make(pod.Namespace), name: pod.Name}
	return watch.Event{Type: watch.Deleted, Object: e}, true
}

// translatedWatch is a watch whose events are translated. Unlike [watch.Filter] it
// ends when it is stopped, even if nobody takes its last event.
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

// podEntry is facts in the form that a reflector passes on: what it holds of all
// pods until the first list is whole must be small, too.
type podEntry struct {
	pod             compactPod
	resourceVersion string
	// initialEventsEnd is whether it is the bookmark that ends the initial events.
	initialEventsEnd bool
}

// GetObjectKind implements [runtime.Object].
func (e *podEntry) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (e *podEntry) DeepCopyObject() runtime.Object { c := *e; return &c }

// GetObjectMeta implements [metav1.ObjectMetaAccessor], with what a reflector
// asks for. It is made when it is asked for, since metadata are larger than all
// that is kept.
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

// podEntryList is a list of them.
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

// reflectorStore is the Store as a reflector fills it.
type reflectorStore struct{ store *Store }

// Add implements [cache.ReflectorStore].
func (s reflectorStore) Add(object any) error { return s.upsert(object) }

// Update implements [cache.ReflectorStore].
func (s reflectorStore) Update(object any) error { return s.upsert(object) }

func (s reflectorStore) upsert(object any) error {
	e, err := podEntryOf(object)
	if err == nil {
		s.store.upsert(&e.pod)
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

// Resync implements [cache.ReflectorStore]; nothing here is ever forgotten.
func (s reflectorStore) Resync() error { return nil }

func podEntryOf(object any) (*podEntry, error) {
	if e, ok := object.(*podEntry); ok {
		return e, nil
	}
	return nil, fmt.Errorf("gpupods: got a %T from the stream of pods", object)
}
