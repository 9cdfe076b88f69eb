// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"sync"
	"time"

	"sluice.dev/api/policytime"
)

const (
	// maxFormerSets is the number of replaced sets with different policies that are kept, and
	// maxFormerVersions that of all replaced sets: the data changes more often, and the sets share
	// their policies.
	maxFormerSets, maxFormerVersions = 8, 40
	// maxFormerDataBytes limits the data of replaced sets that no later set has, as bytes of JSON. In
	// memory it takes about twenty times as much once a policy has read it.
	maxFormerDataBytes = 1 << 20
	// formerSetAge is the time for which they are kept, in machine time: longer than the admission of
	// one object takes, and than replicas of the webhook differ.
	formerSetAge = 30 * time.Second
)

// formerSets are the sets that were replaced a moment ago.
type formerSets struct {
	mu      sync.Mutex
	sets    []formerSet   // the latest last
	changed chan struct{} // closed when the current set is replaced
}

type formerSet struct {
	set        *Set
	replacedAt time.Time
	// dataBytes is the size of the data that the next set does not have.
	dataBytes int
}

// add adds the set that was current until now, or nil before the first, unless it is equal to the
// current one.
func (f *formerSets) add(replaced, current *Set) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
	f.removeOld()
	if replaced != nil && replaced.digest != current.digest {
		f.sets = append(f.sets, formerSet{
			set: replaced, replacedAt: policytime.MachineNow(), dataBytes: replaced.data.changedBytes(current.data),
		})
		f.sets = slices.Clone(f.sets[f.firstKept():])
		// Without another update, the memory of its policies becomes free too.
		time.AfterFunc(formerSetAge, func() { //nolint:forbidigo // machine time
			f.mu.Lock()
			defer f.mu.Unlock()
			f.removeOld()
		})
	}
}

// firstKept returns the index of the oldest set that the limits allow.
func (f *formerSets) firstKept() int {
	policies, bytes := 0, 0
	for i, former := range slices.Backward(f.sets) {
		if i == len(f.sets)-1 || former.set.policiesDigest != f.sets[i+1].set.policiesDigest {
			policies++
		}
		bytes += former.dataBytes
		if policies > maxFormerSets || bytes > maxFormerDataBytes || len(f.sets)-i > maxFormerVersions {
			return i + 1
		}
	}
	return 0
}

// removeOld removes the sets that were replaced too long ago. The caller holds mu.
func (f *formerSets) removeOld() {
	now := policytime.MachineNow()
	f.sets = slices.DeleteFunc(f.sets, func(former formerSet) bool { return now.Sub(former.replacedAt) >= formerSetAge })
}

// Former returns the sets that were replaced within the last half minute, the latest first,
// without those that are equal to the given one.
func (e *Engine) Former(current *Set) []*Set {
	e.former.mu.Lock()
	defer e.former.mu.Unlock()
	e.former.removeOld()
	var sets []*Set
	for _, former := range slices.Backward(e.former.sets) {
		known := func(other *Set) bool { return other.digest == former.set.digest }
		if former.set.digest != current.digest && !slices.ContainsFunc(sets, known) {
			sets = append(sets, former.set)
		}
	}
	return sets
}

// Replaced returns a channel that is closed when the set is no longer current.
func (e *Engine) Replaced(set *Set) <-chan struct{} {
	e.former.mu.Lock()
	defer e.former.mu.Unlock()
	if e.current.Load() != set {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return e.former.changed
}
