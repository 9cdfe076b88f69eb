// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recent keeps what was asked for lately.
//
// Enters: values by their keys, with their sizes. Leaves: those of them that were
// kept or asked for not long ago.
//
// It never holds more of them, nor more bytes, than it was told, whatever is put
// into it.
package cache

import (
	"sync"
)

// Cache keeps recent values in two generations: when the young one is full it
// becomes the old one, and the old one is forgotten. What is found in the old one
// becomes young again. It is safe for concurrent use; its zero value keeps
// nothing.
type Cache[K comparable, V any] struct {
	entries, bytes int

	mu         sync.Mutex
	young, old map[K]entry[V]
	// size is the bytes of the young generation.
	size int
}

type entry[V any] struct {
	value V
	size  int
}

// New returns a memory of two generations, of at most so many entries and bytes
// each. Where either is not positive it keeps nothing.
func New[K comparable, V any](entries, bytes int) *Cache[K, V] {
	return &Cache[K, V]{entries: entries, bytes: bytes}
}

// Get returns what is kept by a key.
func (m *Cache[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.young[key]
	if !ok {
		if found, ok = m.old[key]; ok {
			m.store(key, found)
		}
	}
	return found.value, ok
}

// Put keeps a value that takes about so many bytes. One that is larger than a
// quarter of a generation is not kept: it would push out all others.
func (m *Cache[K, V]) Put(key K, value V, size int) {
	if m.entries <= 0 || size > m.bytes/4 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(key, entry[V]{value, size})
}

func (m *Cache[K, V]) store(key K, kept entry[V]) {
	if m.young == nil || len(m.young) >= m.entries || m.size+kept.size > m.bytes {
		m.young, m.old, m.size = make(map[K]entry[V]), m.young, 0
	}
	m.size += kept.size - m.young[key].size
	m.young[key] = kept
}
