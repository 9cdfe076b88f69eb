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

// Names of combined or unknown users, node pools and clocks. No object has such a name.
const (
	// UnknownName is the user of usage without a known creator, and the node pool of a pod
	// that was not admitted by Sluice.
	UnknownName = "(unknown)"
	// OthersName combines entries beyond the maximum.
	OthersName = "(others)"
)

// Addition is usage to add to a record.
type Addition struct {
	// Department is the department to which the project belongs.
	Department string
	// At is the current policy time.
	At time.Time
	// Uses are in the record's month.
	Uses []Use
	// Cursors replace the record's cursors: until when each running workload is included
	// after this addition.
	Cursors map[string]time.Time
}

// AddToStatus returns a record's status with an addition. The sum of the entries grows exactly by
// the sum of the uses, in any order and partition. Entries and cursors beyond the maximum are
// combined, never lost.
func AddToStatus(old v1alpha1.UsageRecordStatus, add Addition) v1alpha1.UsageRecordStatus {
	sums := entrySums{}
	for _, e := range old.Entries {
		sums.add(entryKey{e.User, e.WorkloadType, e.NodePool}, amounts{e.GPUMilliSeconds, e.UsedGPUMilliSeconds, e.IdleGPUMilliSeconds})
	}
	for _, use := range add.Uses {
		sums.add(entryKey{use.User, use.Type, use.NodePool}, use.amounts())
	}
	sums.mergeSmallest()
	at := truncateToSecond(add.At)
	if last := old.UpdatedAt; last != nil && at.Before(last.Time) {
		at = last.UTC()
	}
	total := sums.total()
	return v1alpha1.UsageRecordStatus{
		Department:        add.Department,
		GPUMilliHours:     total.requested / milliSecondsPerMilliHour,
		UsedGPUMilliHours: total.used / milliSecondsPerMilliHour,
		IdleGPUMilliHours: total.idle / milliSecondsPerMilliHour,
		Entries:           sums.entries(),
		Accounted:         boundedCursors(add.Cursors),
		UpdatedAt:         &metav1.Time{Time: at},
	}
}

const milliSecondsPerMilliHour = 3600

// entryKey identifies an entry.
type entryKey struct {
	user string
	kind v1alpha1.WorkloadType
	pool string
}

func (k entryKey) compare(other entryKey) int {
	return cmp.Or(cmp.Compare(k.user, other.user), cmp.Compare(k.kind, other.kind), cmp.Compare(k.pool, other.pool))
}

// entrySums are the sums of entries.
type entrySums map[entryKey]amounts

func (t entrySums) add(key entryKey, usage amounts) {
	if usage.requested > 0 {
		t[key] = t[key].add(usage)
	}
}

func (t entrySums) total() (sum amounts) {
	for _, usage := range t {
		sum = sum.add(usage)
	}
	return sum
}

func (t entrySums) entries() []v1alpha1.UsageEntry {
	entries := make([]v1alpha1.UsageEntry, 0, len(t))
	for key, sum := range t {
		entries = append(entries, v1alpha1.UsageEntry{
			User: key.user, WorkloadType: key.kind, NodePool: key.pool,
			GPUMilliSeconds: sum.requested, UsedGPUMilliSeconds: sum.used, IdleGPUMilliSeconds: sum.idle,
		})
	}
	slices.SortFunc(entries, func(a, b v1alpha1.UsageEntry) int {
		return entryKey{a.User, a.WorkloadType, a.NodePool}.compare(entryKey{b.User, b.WorkloadType, b.NodePool})
	})
	return entries
}

// truncateToSecond returns the instant as an API timestamp.
func truncateToSecond(at time.Time) time.Time { return at.UTC().Truncate(time.Second) }

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlierTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Maximum number and size of entries and cursors in a record. An object is limited to about 1.5 MB;
// most of it is the managedFields of the API server.
const (
	maxEntries, maxEntryBytes  = 4096, 768 << 10
	maxCursors, maxCursorBytes = 4096, 384 << 10
	entryBytes, cursorBytes    = 260, 105 // plus twice the length of the names
)

// estimatedBytes returns about how many bytes an entry adds to its object.
func (k entryKey) estimatedBytes() int { return entryBytes + 2*(len(k.user)+len(k.pool)) }

// mergeSmallest combines the smallest entries until the record can hold them: first those of
// users, then also those of node pools. The sums by type stay exact, and those by node pool where
// possible.
func (t entrySums) mergeSmallest() {
	bytes := 0
	for key := range t {
		bytes += key.estimatedBytes()
	}
	fits := func() bool { return len(t) <= maxEntries && bytes <= maxEntryBytes }
	for _, combine := range []func(entryKey) entryKey{
		func(k entryKey) entryKey { return entryKey{OthersName, k.kind, k.pool} },
		func(k entryKey) entryKey { return entryKey{OthersName, k.kind, OthersName} },
	} {
		if fits() {
			return
		}
		for _, key := range t.sortedAscending() {
			if fits() {
				return
			}
			to := combine(key)
			if to == key {
				continue
			}
			sum := t[key]
			delete(t, key)
			bytes -= key.estimatedBytes()
			if _, exists := t[to]; !exists {
				bytes += to.estimatedBytes()
			}
			t.add(to, sum)
		}
	}
}

// sortedAscending returns the keys, the smallest sum first.
func (t entrySums) sortedAscending() []entryKey {
	return slices.SortedFunc(maps.Keys(t), func(a, b entryKey) int {
		return cmp.Or(cmp.Compare(t[a].requested, t[b].requested), a.compare(b))
	})
}

// boundedCursors returns the cursors of a record. Cursors beyond the maximum become one with the
// latest time, which applies to each workload without its own.
func boundedCursors(cursors map[string]time.Time) []v1alpha1.UsageCursor {
	var list []v1alpha1.UsageCursor
	others, bytes := cursors[OthersName], 0
	for _, clock := range slices.Sorted(maps.Keys(cursors)) {
		if clock == OthersName {
			continue
		}
		bytes += cursorBytes + 2*len(clock)
		if len(list) >= maxCursors-1 || bytes > maxCursorBytes {
			others = laterTime(others, cursors[clock])
			continue
		}
		list = append(list, v1alpha1.UsageCursor{Clock: clock, Until: metav1.NewTime(truncateToSecond(cursors[clock]))})
	}
	if !others.IsZero() {
		list = append([]v1alpha1.UsageCursor{{Clock: OthersName, Until: metav1.NewTime(truncateToSecond(others))}}, list...)
	}
	return list
}
