// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"sync"
	"unique"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// subscribers are called for each change, one change after another.
type subscribers struct {
	// changeMutex is held while a change is stored and handlers are called. So all handlers
	// get the same changes in the same order, and a new handler gets no pod twice.
	changeMutex sync.Mutex
	handlers    map[int]func(Change)
	next        int
}

// Subscribe calls handler for each present pod before it returns, and then for each change,
// in order, until cancel is called. If a pod replaces another of the same name, the first
// change removes the old one and the second adds the new one.
//
// The handler must not block; it should add its work to a queue. It may read the Store,
// which already has the change. It must not change the pods, and must not call Subscribe or
// cancel.
func (s *Store) Subscribe(handler func(Change)) (cancel func()) {
	s.changeMutex.Lock()
	defer s.changeMutex.Unlock()
	for pod := range s.All() {
		handler(Change{After: pod})
	}
	id := s.next
	s.next++
	s.handlers[id] = handler
	return func() {
		s.changeMutex.Lock()
		defer s.changeMutex.Unlock()
		delete(s.handlers, id)
	}
}

// notify calls all handlers. The caller holds changeMutex.
func (s *Store) notify(before, after *record) {
	if len(s.handlers) == 0 {
		return
	}
	var c Change
	if before != nil {
		c.Before = before.toPod()
	}
	if after != nil {
		c.After = after.toPod()
	}
	for _, handler := range s.handlers {
		handler(c)
	}
}

// upsert adds or updates a pod with its values in the projections.
func (s *Store) upsert(p *compactPod, values ...any) {
	s.changeMutex.Lock()
	defer s.changeMutex.Unlock()
	s.setValues(p.key(), values)
	before := s.byName[p.key()] // only holders of changeMutex write the maps
	if before != nil && before.compactPod == *p {
		return
	}
	if before != nil && before.uid != p.uid {
		s.replaceRecord(before, nil)
		s.notify(before, nil)
		before = nil
	}
	after := &record{compactPod: *p}
	s.replaceRecord(before, after)
	s.notify(before, after)
}

// remove removes a pod that ended or was deleted.
func (s *Store) remove(k podKey) {
	s.changeMutex.Lock()
	defer s.changeMutex.Unlock()
	s.setValues(k, nil)
	if before := s.byName[k]; before != nil {
		s.replaceRecord(before, nil)
		s.notify(before, nil)
	}
}

// replaceAll replaces all pods by those of a complete list.
func (s *Store) replaceAll(list []*podEntry) {
	listed := make(map[podKey]struct{}, len(list))
	for _, e := range list {
		listed[e.pod.key()] = struct{}{}
	}
	for _, k := range s.keysNotIn(listed) {
		s.remove(k)
	}
	for _, e := range list {
		s.upsert(&e.pod, e.values...)
	}
}

// keysNotIn returns the keys of the cached pods that are not listed.
func (s *Store) keysNotIn(listed map[podKey]struct{}) []podKey {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	var missing []podKey
	for k := range s.byName {
		if _, ok := listed[k]; !ok {
			missing = append(missing, k)
		}
	}
	return missing
}

// replaceRecord replaces a record in all indices. Either may be nil.
func (s *Store) replaceRecord(before, after *record) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if before != nil {
		delete(s.byName, before.key())
		if s.byUID[before.uid] == before {
			delete(s.byUID, before.uid)
		}
		s.byNamespace.remove(before.namespace, before)
		s.byController.remove(before.controllerUID(), before)
		s.byNode.remove(before.nodeHandle(), before)
	}
	if after != nil {
		s.byName[after.key()] = after
		if after.uid != "" {
			s.byUID[after.uid] = after
		}
		s.byNamespace.add(after.namespace, after)
		s.byController.add(after.controllerUID(), after)
		s.byNode.add(after.nodeHandle(), after)
	}
}

// controllerUID returns the UID of the pod's controller, or "".
func (p *compactPod) controllerUID() string { return string(p.shared.Value().controller.UID) }

var noNode = unique.Make("")

// nodeHandle returns the pod's node, or the zero handle if the pod is not bound.
func (p *compactPod) nodeHandle() interned {
	if p.node == noNode {
		return interned{}
	}
	return p.node
}

// Source returns a source that enqueues the requests of each [Change]. The controller starts
// when the Store is synced. requestsFor must not block, like the handler of [Store.Subscribe].
func Source[request comparable](store *Store, requestsFor func(Change) []request) source.TypedSyncingSource[request] {
	return &podSource[request]{store: store, requestsFor: requestsFor}
}

type podSource[request comparable] struct {
	store       *Store
	requestsFor func(Change) []request
}

// Start implements [source.TypedSource].
func (s *podSource[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	cancel := s.store.Subscribe(func(c Change) {
		for _, key := range s.requestsFor(c) {
			queue.Add(key)
		}
	})
	context.AfterFunc(ctx, cancel)
	return nil
}

// WaitForSync implements [source.TypedSyncingSource].
func (s *podSource[request]) WaitForSync(ctx context.Context) error { return s.store.WaitForSync(ctx) }
