// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"sync"
	"testing"

	"sluice.dev/policies/engine"
)

func TestCacheKeepsUsedEntries(t *testing.T) {
	c := engine.NewCache[int, string](4, 1000)
	c.Put(0, "zero", 1)
	for i := 1; i < 100; i++ {
		c.Put(i, "other", 1)
		if got, ok := c.Get(0); !ok || got != "zero" {
			t.Fatalf("after %d others: %q, %v", i, got, ok)
		}
	}
	if _, ok := c.Get(1); ok {
		t.Error("an entry without a hit is still cached")
	}
}

func TestCacheIsBoundedInEntriesAndBytes(t *testing.T) {
	tests := map[string]struct {
		entries, bytes, size, most int
	}{
		"by entries":                 {entries: 4, bytes: 1 << 20, size: 1, most: 8},
		"by bytes":                   {entries: 1000, bytes: 40, size: 10, most: 8},
		"too large for a generation": {entries: 1000, bytes: 40, size: 11, most: 0},
		"no entries":                 {entries: 0, bytes: 40, size: 1, most: 0},
		"no bytes":                   {entries: 4, bytes: 0, size: 1, most: 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := engine.NewCache[int, int](tt.entries, tt.bytes)
			for i := range 100 {
				c.Put(i, i, tt.size)
			}
			// The youngest first: a hit makes an entry young again.
			cached := 0
			for i := 99; i >= 0; i-- {
				if _, ok := c.Get(i); ok {
					cached++
				}
			}
			if cached > tt.most || tt.most > 0 && cached == 0 {
				t.Errorf("%d entries are cached, want at most %d", cached, tt.most)
			}
		})
	}
}

func TestCacheCountsAKeyOnce(t *testing.T) {
	c := engine.NewCache[string, int](10, 100)
	c.Put("a", 1, 20)
	for i := range 50 {
		c.Put("b", i, 20)
	}
	if got, ok := c.Get("b"); !ok || got != 49 {
		t.Errorf("b is %d, %v", got, ok)
	}
	if _, ok := c.Get("a"); !ok {
		t.Error("one other key displaced a")
	}
}

func TestZeroCacheIsEmpty(t *testing.T) {
	var c engine.Cache[int, int]
	c.Put(1, 1, 0)
	if _, ok := c.Get(1); ok {
		t.Error("the zero Cache stored a value")
	}
}

func TestCacheConcurrency(t *testing.T) {
	c := engine.NewCache[int, int](8, 1000)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				c.Put(i%16, i%16, 3)
				if got, ok := c.Get(i % 16); ok && got != i%16 {
					t.Errorf("key %d has the value %d", i%16, got)
				}
			}
		})
	}
	all.Wait()
}
