// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"sync"
	"testing"

	"sluice.dev/policies/engine/cache"
)

func TestCacheKeepsUsedEntries(t *testing.T) {
	m := cache.New[int, string](4, 1000)
	m.Put(0, "zero", 1)
	for i := 1; i < 100; i++ {
		m.Put(i, "other", 1)
		if got, ok := m.Get(0); !ok || got != "zero" {
			t.Fatalf("after %d others: %q, %v", i, got, ok)
		}
	}
	if _, ok := m.Get(1); ok {
		t.Error("what nobody asked for is still kept")
	}
}

func TestCacheIsBoundedInEntriesAndBytes(t *testing.T) {
	tests := map[string]struct {
		entries, bytes, size, most int
	}{
		"by entries":         {entries: 4, bytes: 1 << 20, size: 1, most: 8},
		"by bytes":           {entries: 1000, bytes: 40, size: 10, most: 8},
		"too large":          {entries: 1000, bytes: 40, size: 11, most: 0},
		"nothing is kept":    {entries: 0, bytes: 40, size: 1, most: 0},
		"no byte is allowed": {entries: 4, bytes: 0, size: 1, most: 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := cache.New[int, int](tt.entries, tt.bytes)
			for i := range 100 {
				m.Put(i, i, tt.size)
			}
			// The youngest first: what is found becomes young again.
			kept := 0
			for i := 99; i >= 0; i-- {
				if _, ok := m.Get(i); ok {
					kept++
				}
			}
			if kept > tt.most || tt.most > 0 && kept == 0 {
				t.Errorf("%d are kept, want at most %d", kept, tt.most)
			}
		})
	}
}

func TestCacheCountsAKeyOnce(t *testing.T) {
	m := cache.New[string, int](10, 100)
	m.Put("a", 1, 20)
	for i := range 50 {
		m.Put("b", i, 20)
	}
	if got, ok := m.Get("b"); !ok || got != 49 {
		t.Errorf("b is %d, %v", got, ok)
	}
	if _, ok := m.Get("a"); !ok {
		t.Error("a was pushed out by one other")
	}
}

func TestZeroCacheIsEmpty(t *testing.T) {
	var m cache.Cache[int, int]
	m.Put(1, 1, 0)
	if _, ok := m.Get(1); ok {
		t.Error("it was kept")
	}
}

func TestCacheConcurrency(t *testing.T) {
	m := cache.New[int, int](8, 1000)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				m.Put(i%16, i%16, 3)
				if got, ok := m.Get(i % 16); ok && got != i%16 {
					t.Errorf("%d has %d", i%16, got)
				}
			}
		})
	}
	all.Wait()
}
