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

// subscribers are told of changes, one change after another.
type subscribers struct {
	// changeMutex is held while a change is made and told, so that all are told of the
	// same changes in the same order, and nobody twice of what was there before.
	changeMutex sync.Mutex
	handlers    map[int]func(Change)
	next        int
}

// Subscribe calls handler for each pod that is there already, before it returns,
// and then for each change, in order, until cancel is called. A pod that another
// of the same name replaced is first gone, then new.
//
// The handler must return at once: what it has to do it puts into a queue. It may
// read the Store, which then has the change; it must not call Changes or cancel.
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

// notify tells all subscribers, from within a turn.
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
		own := c // one handler's changes to its pods are not another's
		handler(own)
	}
}

// upsert takes in a pod as it is now.
func (s *Store) upsert(f *compactPod) {
	s.changeMutex.Lock()
	defer s.changeMutex.Unlock()
	before := s.byName[f.key()] // only turns write
	if before != nil && before.compactPod == *f {
		return
	}
	if before != nil && before.uid != f.uid {
		s.replaceRecord(before, nil)
		s.notify(before, nil)
		before = nil
	}
	after := &record{compactPod: *f}
	s.replaceRecord(before, after)
	s.notify(before, after)
}

// remove forgets a pod that has ended or gone.
func (s *Store) remove(k podKey) {
	s.changeMutex.Lock()
	defer s.changeMutex.Unlock()
	if before := s.byName[k]; before != nil {
		s.replaceRecord(before, nil)
		s.notify(before, nil)
	}
}

// replaceAll makes the pods those of a whole list.
func (s *Store) replaceAll(list []*podEntry) {
	there := make(map[podKey]struct{}, len(list))
	for _, e := range list {
		there[e.pod.key()] = struct{}{}
	}
	for _, k := range s.keysNotIn(there) {
		s.remove(k)
	}
	for _, e := range list {
		s.upsert(&e.pod)
	}
}

// keysNotIn are the known pods that are not there.
func (s *Store) keysNotIn(there map[podKey]struct{}) []podKey {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	var missing []podKey
	for k := range s.byName {
		if _, ok := there[k]; !ok {
			missing = append(missing, k)
		}
	}
	return missing
}

// replaceRecord puts one record in another's place; either may be nil.
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

// controllerUID is the UID of the pod's controller, empty for none.
func (f *compactPod) controllerUID() string { return string(f.shared.Value().controller.UID) }

var noNode = unique.Make("")

// nodeHandle is the pod's node, the zero handle for none.
func (f *compactPod) nodeHandle() interned {
	if f.node == noNode {
		return interned{}
	}
	return f.node
}

// Source wakes a controller for changed GPU pods: the requests that keys makes of
// each [Change] go to its queue. The controller starts once all pods are known.
// keys is called as the handler of [Store.Changes] is, and must be as quick.
func Source[request comparable](store *Store, keys func(Change) []request) source.TypedSyncingSource[request] {
	return &podSource[request]{store: store, requestsFor: keys}
}

type podSource[request comparable] struct {
	store       *Store
	requestsFor func(Change) []request
}

// Start implements [source.TypedSource].
func (w *podSource[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	cancel := w.store.Subscribe(func(c Change) {
		for _, key := range w.requestsFor(c) {
			queue.Add(key)
		}
	})
	context.AfterFunc(ctx, cancel)
	return nil
}

// WaitForSync implements [source.TypedSyncingSource].
func (w *podSource[request]) WaitForSync(ctx context.Context) error { return w.store.WaitForSync(ctx) }
