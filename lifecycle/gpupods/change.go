// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"sync"
	"unique"
)

// subscribers are told of changes, one change after another.
type subscribers struct {
	// turn is held while a change is made and told, so that all are told of the
	// same changes in the same order, and nobody twice of what was there before.
	turn     sync.Mutex
	handlers map[int]func(Change)
	next     int
}

// Changes calls handler for each pod that is there already, before it returns,
// and then for each change, in order, until cancel is called. A pod that another
// of the same name replaced is first gone, then new.
//
// The handler must return at once: what it has to do it puts into a queue. It may
// read the Store, which then has the change; it must not call Changes or cancel.
func (s *Store) Changes(handler func(Change)) (cancel func()) {
	s.turn.Lock()
	defer s.turn.Unlock()
	for pod := range s.All() {
		handler(Change{After: pod})
	}
	id := s.next
	s.next++
	s.handlers[id] = handler
	return func() {
		s.turn.Lock()
		defer s.turn.Unlock()
		delete(s.handlers, id)
	}
}

// tell tells all subscribers, from within a turn.
func (s *Store) tell(before, after *record) {
	if len(s.handlers) == 0 {
		return
	}
	var c Change
	if before != nil {
		c.Before = before.pod()
	}
	if after != nil {
		c.After = after.pod()
	}
	for _, handler := range s.handlers {
		own := c // one handler's changes to its pods are not another's
		handler(own)
	}
}

// put takes in a pod as it is now.
func (s *Store) put(f *facts) {
	s.turn.Lock()
	defer s.turn.Unlock()
	before := s.byName[f.key()] // only turns write
	if before != nil && before.facts == *f {
		return
	}
	if before != nil && before.uid != f.uid {
		s.swap(before, nil)
		s.tell(before, nil)
		before = nil
	}
	after := &record{facts: *f}
	s.swap(before, after)
	s.tell(before, after)
}

// drop forgets a pod that has ended or gone.
func (s *Store) drop(k key) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if before := s.byName[k]; before != nil {
		s.swap(before, nil)
		s.tell(before, nil)
	}
}

// replace makes the pods those of a whole list.
func (s *Store) replace(list []*entry) {
	there := make(map[key]struct{}, len(list))
	for _, e := range list {
		there[e.facts.key()] = struct{}{}
	}
	for _, k := range s.missing(there) {
		s.drop(k)
	}
	for _, e := range list {
		s.put(&e.facts)
	}
}

// missing are the known pods that are not there.
func (s *Store) missing(there map[key]struct{}) []key {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	var missing []key
	for k := range s.byName {
		if _, ok := there[k]; !ok {
			missing = append(missing, k)
		}
	}
	return missing
}

// swap puts one record in another's place; either may be nil.
func (s *Store) swap(before, after *record) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if before != nil {
		delete(s.byName, before.key())
		if s.byUID[before.uid] == before {
			delete(s.byUID, before.uid)
		}
		s.byNamespace.remove(before.namespace, before)
		s.byController.remove(before.controller(), before)
		s.byNode.remove(before.placed(), before)
	}
	if after != nil {
		s.byName[after.key()] = after
		if after.uid != "" {
			s.byUID[after.uid] = after
		}
		s.byNamespace.add(after.namespace, after)
		s.byController.add(after.controller(), after)
		s.byNode.add(after.placed(), after)
	}
}

// controller is the UID of the pod's controller, empty for none.
func (f *facts) controller() string { return string(f.more.Value().controller.UID) }

var nowhere = unique.Make("")

// placed is the pod's node, the zero handle for none.
func (f *facts) placed() shared {
	if f.node == nowhere {
		return shared{}
	}
	return f.node
}
