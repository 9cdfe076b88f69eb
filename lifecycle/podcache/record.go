// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// interned is a text of which there are few; equal ones are there once, for as long
// as any is in use.
type interned = unique.Handle[string]

// compactPod are a Pod as it is kept. Facts are compared with ==.
type compactPod struct {
	// name and uid are parts of one text.
	name, uid string
	namespace interned
	// shared is what pods of one workload have in common.
	shared           unique.Handle[sharedFields]
	node             interned
	created, started int64 // seconds since 1970; 0 is not known
	flags            flags
}

// sharedFields is what differs between the pods of one workload, or its replicas, only
// by accident.
type sharedFields struct {
	controller   Owner
	group        string
	milli        workload.Milli
	pool         string
	workloadType v1alpha1.WorkloadType
	project      string
	createdBy    string
	maxRuntime   period.Duration
}

type flags uint8

const (
	flagRunning flags = 1 << iota
	flagDeleting
	flagUnreadable
	flagQueued
)

func (f flags) has(one flags) bool { return f&one != 0 }

func (f *flags) set(one flags, on bool) {
	if on {
		*f |= one
	}
}

// record is facts with their places in the indices. Once stored its facts do not
// change: another record takes its place.
type record struct {
	compactPod
	positions [indexCount]int32
}

// internName is a pod's name and UID as one text, cut from whatever they were part of.
func internName(name string, uid types.UID) (string, string) {
	both := strings.Join([]string{name, string(uid)}, "")
	return both[:len(name)], both[len(name):]
}

func (f *compactPod) key() podKey { return podKey{f.namespace, f.name} }

// toPod is the record as others see it.
func (f *compactPod) toPod() *Pod {
	more := f.shared.Value()
	return &Pod{
		Namespace: f.namespace.Value(), Name: f.name, UID: types.UID(f.uid),
		Node: f.node.Value(), Controller: more.controller, Group: more.group,
		Running: f.flags.has(flagRunning), Deleting: f.flags.has(flagDeleting), Unreadable: f.flags.has(flagUnreadable),
		Queued:    f.flags.has(flagQueued),
		CreatedAt: fromUnixSeconds(f.created), StartedAt: fromUnixSeconds(f.started),
		Milli: more.milli, Pool: more.pool, WorkloadType: more.workloadType, Project: more.project,
		CreatedBy: more.createdBy, MaxRuntime: more.maxRuntime,
	}
}

func fromUnixSeconds(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// The indices that have a place in each record.
const (
	namespaceIndex = iota
	controllerIndex
	nodeIndex
	indexCount
)

// index finds the records that have a key in common. It is a map of slices, in
// which each record knows its place, since a map for each key would take more
// memory than the records.
type index[K comparable] struct {
	slot    int
	records map[K][]*record
}

func newIndex[K comparable](which int) index[K] {
	return index[K]{slot: which, records: map[K][]*record{}}
}

// add puts r under k. The zero key stands for none.
func (x *index[K]) add(k K, r *record) {
	var none K
	if k == none {
		return
	}
	r.positions[x.slot] = int32(len(x.records[k])) // #nosec G115 -- no cluster has 2 billion pods
	x.records[k] = append(x.records[k], r)
}

// remove takes r away from under k, and moves the last to its place.
func (x *index[K]) remove(k K, r *record) {
	all := x.records[k]
	at := int(r.positions[x.slot])
	if at >= len(all) || all[at] != r {
		return // was never added: it had no key
	}
	last := len(all) - 1
	all[at] = all[last]
	all[at].positions[x.slot] = r.positions[x.slot]
	all[last] = nil
	if last == 0 {
		delete(x.records, k)
		return
	}
	x.records[k] = all[:last]
}
