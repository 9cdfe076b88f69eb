// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
)

// book is what is known of the records of a namespace's project. Whoever has the
// turn reads and writes it.
type book struct {
	turn sync.Mutex
	// owner is whose the records are.
	owner *owner
	// since is since when the namespace is watched, and wrote when a record was last
	// written, both in machine time.
	since, wrote time.Time
	// loaded is whether the records were read that may say what was accounted before.
	loaded bool
	// floors are up to when another process accounted for each clock, and latest is
	// the latest of them. It holds for what has no cursor of its own: each process
	// accounts at once for all that runs, so that this has begun since, or had another
	// name.
	floors map[string]time.Time
	latest time.Time
	// versions are those in which records were last seen, by name.
	versions map[string]string
	// attempts are the writes of which nobody knows whether they were done, by the
	// record's name.
	attempts map[string][]*attempt
	// marked are the records that have cursors, by month.
	marked map[month]bool
}

func newBook() *book {
	b := &book{since: clock.MachineNow()}
	b.close()
	return b
}

// close makes it nobody's.
func (b *book) close() {
	b.owner, b.loaded, b.latest = nil, false, time.Time{}
	b.floors, b.versions = map[string]time.Time{}, map[string]string{}
	b.attempts, b.marked = map[string][]*attempt{}, map[month]bool{}
}

// attempt is a record's write, and what holds once it is done.
type attempt struct {
	status v1alpha1.UsageRecordStatus
	done   map[*stretch]time.Time
	sums   map[v1alpha1.WorkloadType]int64
}

// floor is up to when another process accounted for a clock, empty for one that is
// not known; zero for not at all.
func (b *book) floor(clock string) time.Time {
	if at, own := b.floors[clock]; own {
		return at
	}
	return b.latest
}

// adopt takes note of a record as it is read, and tells whether anything in it is
// new here: a write of ours that was done though nobody said so, or another's.
func (b *book) adopt(record *v1alpha1.UsageRecord, m month) bool {
	b.marked[m] = len(record.Status.Accounted) > 0
	if version, known := b.versions[record.Name]; known && version == record.ResourceVersion {
		return false
	}
	for _, a := range b.attempts[record.Name] {
		if equality.Semantic.DeepEqual(a.status, record.Status) {
			b.settle(record, a)
			return true
		}
	}
	b.versions[record.Name] = record.ResourceVersion
	delete(b.attempts, record.Name)
	for _, cursor := range record.Status.Accounted {
		b.floors[cursor.Clock] = later(b.floors[cursor.Clock], cursor.Until.UTC())
		b.latest = later(b.latest, cursor.Until.UTC())
	}
	return true
}

// settle takes note of a write that was done.
func (b *book) settle(record *v1alpha1.UsageRecord, a *attempt) {
	b.versions[record.Name] = record.ResourceVersion
	delete(b.attempts, record.Name)
	for s, until := range a.done {
		s.done = later(s.done, until)
	}
	observe(a.status.Department, a.sums)
}
