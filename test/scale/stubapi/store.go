// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// maxEvents is the number of events that are kept for resumed watches.
const maxEvents = 200_000

// store holds the objects of all kinds, their common version counter, and the events.
type store struct {
	mutex   sync.Mutex
	version uint64
	tables  map[string]*table // by group and resource
	pages   map[string]*continuation
	writes  map[Write]int
	changes map[Write]int
}

// table holds the objects of one kind.
type table struct {
	kind    Kind
	objects map[string]*object
	// events holds the last events; the first of them has number first.
	events []storedEvent
	first  int
	// oldest is the version before the first event. A client with an older version must
	// list again.
	oldest uint64
	// more is closed and replaced at each event.
	more chan struct{}
}

// storedEvent holds an object before and after an event, either of which may be nil.
type storedEvent struct {
	version       uint64
	before, after *object
}

// Write is a kind of write for counting.
type Write struct {
	// Verb is create, update, patch, apply or delete.
	Verb string
	// Resource is the written resource: jobs.batch, workloadclocks.sluice.dev/status.
	Resource string
}

func newStore(kinds []Kind) *store {
	s := &store{
		version: 1, tables: map[string]*table{}, pages: map[string]*continuation{}, writes: map[Write]int{},
		changes: map[Write]int{},
	}
	for _, kind := range kinds {
		s.tables[kind.groupResource().String()] = &table{kind: kind, objects: map[string]*object{}, more: make(chan struct{}), oldest: 1}
	}
	return s
}

// get returns the object with this key.
func (s *store) get(t *table, key string) (*object, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if o := t.objects[key]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(t.kind.groupResource(), key[lastSlash(key):])
}

// listSelected returns the selected objects in the order of their keys, and the version of
// the list.
func (s *store) listSelected(t *table, selected *selection) ([]*object, uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	list := make([]*object, 0, len(t.objects))
	for _, key := range slices.Sorted(maps.Keys(t.objects)) {
		if o := t.objects[key]; selected.matches(o) {
			list = append(list, o)
		}
	}
	return list, s.version
}

// put replaces an object with the result of change, in a new version. A nil result deletes
// the object; an unchanged result creates no version.
func (s *store) put(t *table, key string, change func(before *object, version uint64) (*object, error)) (*object, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	before := t.objects[key]
	after, err := change(before, s.version+1)
	if err != nil || after == before {
		return after, err
	}
	s.version++
	t.appendEvent(storedEvent{s.version, before, after})
	if after == nil {
		delete(t.objects, key)
		return nil, nil
	}
	t.objects[key] = after
	return after, nil
}

// appendEvent stores an event and wakes the watches.
func (t *table) appendEvent(e storedEvent) {
	t.events = append(t.events, e)
	if surplus := len(t.events) - maxEvents; surplus > maxEvents/10 {
		t.oldest = t.events[surplus-1].version
		t.events = slices.Clone(t.events[surplus:])
		t.first += surplus
	}
	close(t.more)
	t.more = make(chan struct{})
}

// selectedEvent is an event as a watch with a selection receives it.
type selectedEvent struct {
	kind   watch.EventType
	object *object
	// version is the event's version; a deleted object has an older one.
	version uint64
}

// eventsSince returns the selected events from number on, the number of the next, and a
// channel that is closed at the next event.
func (s *store) eventsSince(t *table, number int, selected *selection) ([]selectedEvent, int, <-chan struct{}, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if number < t.first {
		return nil, 0, nil, expiredError()
	}
	var events []selectedEvent
	for _, e := range t.events[number-t.first:] {
		before, after := e.before != nil && selected.matches(e.before), e.after != nil && selected.matches(e.after)
		switch {
		case after && !before:
			events = append(events, selectedEvent{watch.Added, e.after, e.version})
		case after:
			events = append(events, selectedEvent{watch.Modified, e.after, e.version})
		case before && e.after != nil: // the object no longer matches: show its new state
			events = append(events, selectedEvent{watch.Deleted, e.after, e.version})
		case before:
			events = append(events, selectedEvent{watch.Deleted, e.before, e.version})
		}
	}
	return events, t.first + len(t.events), t.more, nil
}

// firstEventAfter returns the number of the first event after a version.
func (s *store) firstEventAfter(t *table, version uint64) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if version < t.oldest {
		return 0, expiredError()
	}
	at, _ := slices.BinarySearchFunc(t.events, version+1, func(e storedEvent, v uint64) int {
		switch {
		case e.version < v:
			return -1
		case e.version > v:
			return 1
		}
		return 0
	})
	return t.first + at, nil
}

func (s *store) count(counts map[Write]int, w Write) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	counts[w]++
}

func expiredError() error {
	return apierrors.NewResourceExpired("the resource version is too old: list again")
}

func lastSlash(key string) int {
	for i := range key {
		if key[i] == '/' {
			return i + 1
		}
	}
	return 0
}

func formatVersion(version uint64) string { return strconv.FormatUint(version, 10) }
