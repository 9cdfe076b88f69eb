// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"strings"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// translate is an event of a pod as one of an entry, and false for what is not
// to be passed on.
func (s *stream) translate(event watch.Event) (watch.Event, bool) {
	if event.Type == watch.Error {
		return event, true
	}
	pod, ok := event.Object.(*corev1.Pod)
	if !ok { // ends the watch, with an error that tells what came
		return watch.Event{Type: watch.Error, Object: event.Object}, true
	}
	e := &entry{resourceVersion: strings.Clone(pod.ResourceVersion)}
	switch event.Type {
	case watch.Bookmark:
		e.end = pod.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		return watch.Event{Type: watch.Bookmark, Object: e}, true
	case watch.Added, watch.Modified:
		if e.facts, ok = s.reader.read(pod); ok {
			return watch.Event{Type: event.Type, Object: e}, true
		}
		if event.Type == watch.Added {
			return event, false
		}
	}
	// It has gone, or is none of ours any more.
	e.facts = facts{namespace: unique.Make(pod.Namespace), name: pod.Name}
	return watch.Event{Type: watch.Deleted, Object: e}, true
}

// translation is a watch whose events are translated. Unlike [watch.Filter] it
// ends when it is stopped, even if nobody takes its last event.
type translation struct {
	from      watch.Interface
	translate func(watch.Event) (watch.Event, bool)
	out       chan watch.Event
	stop      sync.Once
	stopped   chan struct{}
}

func translated(from watch.Interface, translate func(watch.Event) (watch.Event, bool)) watch.Interface {
	t := &translation{from: from, translate: translate, out: make(chan watch.Event), stopped: make(chan struct{})}
	go t.run()
	return t
}

// ResultChan implements [watch.Interface].
func (t *translation) ResultChan() <-chan watch.Event { return t.out }

// Stop implements [watch.Interface].
func (t *translation) Stop() {
	t.stop.Do(func() { close(t.stopped) })
	t.from.Stop()
}

func (t *translation) run() {
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
