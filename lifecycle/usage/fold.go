// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// A record holds so many entries and cursors, and so many bytes of each: what an
// object may weigh in all is a megabyte and a half, most of it what the API server
// notes about who manages which part.
const (
	maxEntries, maxEntryBytes  = 4096, 768 << 10
	maxCursors, maxCursorBytes = 4096, 384 << 10
	entryWeight, cursorWeight  = 260, 105 // beside what their names weigh, twice
)

// weight is about how many bytes an entry adds to its object.
func (k entryKey) weight() int { return entryWeight + 2*(len(k.user)+len(k.pool)) }

// fold tells the smallest entries together until the record can hold them: as those
// of other users first, then of other pools too. Sums by type are kept in any case,
// and sums by pool wherever that is possible.
func (t tally) fold() {
	bytes := 0
	for key := range t {
		bytes += key.weight()
	}
	fits := func() bool { return len(t) <= maxEntries && bytes <= maxEntryBytes }
	for _, into := range []func(entryKey) entryKey{
		func(k entryKey) entryKey { return entryKey{Others, k.kind, k.pool} },
		func(k entryKey) entryKey { return entryKey{Others, k.kind, Others} },
	} {
		if fits() {
			return
		}
		for _, key := range t.ascending() {
			if fits() {
				return
			}
			to := into(key)
			if to == key {
				continue
			}
			sum := t[key]
			delete(t, key)
			bytes -= key.weight()
			if _, there := t[to]; !there {
				bytes += to.weight()
			}
			t.add(to, sum)
		}
	}
}

// ascending are the entries, the smallest first.
func (t tally) ascending() []entryKey {
	return slices.SortedFunc(maps.Keys(t), func(a, b entryKey) int {
		return cmp.Or(cmp.Compare(t[a], t[b]), a.compare(b))
	})
}

// bounded are cursors as a record has them. Those beyond what it can hold are one,
// that of the latest among them: it holds for each workload without its own.
func bounded(cursors map[string]time.Time) []v1alpha1.UsageCursor {
	var list []v1alpha1.UsageCursor
	others, bytes := cursors[Others], 0
	for _, clock := range slices.Sorted(maps.Keys(cursors)) {
		if clock == Others {
			continue
		}
		bytes += cursorWeight + 2*len(clock)
		if len(list) >= maxCursors-1 || bytes > maxCursorBytes {
			others = later(others, cursors[clock])
			continue
		}
		list = append(list, v1alpha1.UsageCursor{Clock: clock, Until: metav1.NewTime(whole(cursors[clock]))})
	}
	if !others.IsZero() {
		list = append([]v1alpha1.UsageCursor{{Clock: Others, Until: metav1.NewTime(whole(others))}}, list...)
	}
	return list
}
