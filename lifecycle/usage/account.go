// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Names that stand for no single user, node pool or clock. Nobody has such a name.
const (
	// Unknown is the user of what nobody can be said to have made, and the node pool
	// of a pod that admission has not seen.
	Unknown = "(unknown)"
	// Others is what was too many to be told apart.
	Others = "(others)"
)

// Addition is what comes to a record at once.
type Addition struct {
	// Department is the department to which the project belongs.
	Department string
	// At is now, in policy time.
	At time.Time
	// Uses are those of the record's month.
	Uses []Use
	// Cursors say up to when each workload that runs is accounted for with this. They
	// take the place of those that were there.
	Cursors map[string]time.Time
}

// Account is a record's status with an addition. The sum of its entries grows by
// that of the uses, exactly, in whatever parts and order they come; what are too
// many entries or cursors are told together, and never lost.
func Account(was v1alpha1.UsageRecordStatus, add Addition) v1alpha1.UsageRecordStatus {
	sums := tally{}
	for _, e := range was.Entries {
		sums.add(entryKey{e.User, e.WorkloadType, e.NodePool}, e.GPUMilliSeconds)
	}
	for _, use := range add.Uses {
		sums.add(entryKey{use.User, use.Type, use.NodePool}, use.MilliSeconds())
	}
	sums.fold()
	at := whole(add.At)
	if last := was.UpdatedAt; last != nil && at.Before(last.Time) {
		at = last.UTC()
	}
	return v1alpha1.UsageRecordStatus{
		Department:    add.Department,
		GPUMilliHours: sums.total() / milliSecondsPerMilliHour,
		Entries:       sums.entries(),
		Accounted:     bounded(add.Cursors),
		UpdatedAt:     &metav1.Time{Time: at},
	}
}

const milliSecondsPerMilliHour = 3600

// entryKey is what an entry is for.
type entryKey struct {
	user string
	kind v1alpha1.WorkloadType
	pool string
}

func (k entryKey) compare(other entryKey) int {
	return cmp.Or(cmp.Compare(k.user, other.user), cmp.Compare(k.kind, other.kind), cmp.Compare(k.pool, other.pool))
}

// tally are sums by entry, in thousandths of a GPU times seconds.
type tally map[entryKey]int64

func (t tally) add(key entryKey, milliSeconds int64) {
	if milliSeconds > 0 {
		t[key] = plus(t[key], milliSeconds)
	}
}

func (t tally) total() (sum int64) {
	for _, milliSeconds := range t {
		sum = plus(sum, milliSeconds)
	}
	return sum
}

func (t tally) entries() []v1alpha1.UsageEntry {
	entries := make([]v1alpha1.UsageEntry, 0, len(t))
	for key, sum := range t {
		entries = append(entries, v1alpha1.UsageEntry{User: key.user, WorkloadType: key.kind, NodePool: key.pool, GPUMilliSeconds: sum})
	}
	slices.SortFunc(entries, func(a, b v1alpha1.UsageEntry) int {
		return entryKey{a.User, a.WorkloadType, a.NodePool}.compare(entryKey{b.User, b.WorkloadType, b.NodePool})
	})
	return entries
}

// whole is an instant as it can be recorded.
func whole(at time.Time) time.Time { return at.UTC().Truncate(time.Second) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
