// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"iter"
	"slices"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/types"
)

// Store is the GPU pods as far as they are known: all of them as of some moment,
// once [Store.HasSynced]. It is safe for concurrent use; what it gives out is the
// caller's.
type Store struct {
	settings

	// mutex guards the maps; it is held for no longer than they are looked into.
	mutex        sync.RWMutex
	byName       map[key]*record
	byUID        map[string]*record
	byNamespace  index[shared]
	byController index[string]
	byNode       index[shared]

	subscribers
	synced chan struct{} // closed when all that was there is known
}

// key is a namespace and a name.
type key struct {
	namespace shared
	name      string
}

// empty is a Store without pods.
func empty() *Store {
	return &Store{
		byName:       map[key]*record{},
		byUID:        map[string]*record{},
		byNamespace:  newIndex[shared](ofNamespace),
		byController: newIndex[string](ofController),
		byNode:       newIndex[shared](ofNode),
		subscribers:  subscribers{handlers: map[int]func(Change){}},
		synced:       make(chan struct{}),
	}
}

// Len is how many there are.
func (s *Store) Len() int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return len(s.byName)
}

// Get is the pod of that name, and false where there is none that asks for GPUs.
func (s *Store) Get(name types.NamespacedName) (*Pod, bool) {
	s.mutex.RLock()
	r, ok := s.byName[key{unique.Make(name.Namespace), name.Name}]
	s.mutex.RUnlock()
	return expand(r, ok)
}

// ByUID is the pod of that UID, and false where there is none that asks for GPUs.
func (s *Store) ByUID(uid types.UID) (*Pod, bool) {
	s.mutex.RLock()
	r, ok := s.byUID[string(uid)]
	s.mutex.RUnlock()
	return expand(r, ok)
}

func expand(r *record, ok bool) (*Pod, bool) {
	if !ok {
		return nil, false
	}
	return r.pod(), true
}

// InNamespace are the pods of a namespace, in no order.
func (s *Store) InNamespace(namespace string) iter.Seq[*Pod] {
	return s.each(func() []*record { return s.byNamespace.records[unique.Make(namespace)] })
}

// ControlledBy are the pods whose controller, the next owner and not the root,
// has that UID, in no order.
func (s *Store) ControlledBy(uid types.UID) iter.Seq[*Pod] {
	return s.each(func() []*record { return s.byController.records[string(uid)] })
}

// OnNode are the pods that are bound to a node, in no order.
func (s *Store) OnNode(node string) iter.Seq[*Pod] {
	return s.each(func() []*record { return s.byNode.records[unique.Make(node)] })
}

// All are all pods, in no order.
func (s *Store) All() iter.Seq[*Pod] {
	return s.each(func() []*record {
		all := make([]*record, 0, len(s.byName))
		for _, r := range s.byName {
			all = append(all, r)
		}
		return all
	})
}

// each gives the pods as they were when the loop began. Nothing is locked while
// its body runs.
func (s *Store) each(of func() []*record) iter.Seq[*Pod] {
	return func(yield func(*Pod) bool) {
		s.mutex.RLock()
		records := slices.Clone(of()) // records stay as they are, their order does not
		s.mutex.RUnlock()
		for _, r := range records {
			if !yield(r.pod()) {
				return
			}
		}
	}
}
