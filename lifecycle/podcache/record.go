// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// interned is a string with few distinct values.
type interned = unique.Handle[string]

// compactPod is the stored form of a Pod. It is comparable with ==.
type compactPod struct {
	// name and uid are slices of one string.
	name, uid        string
	namespace        interned
	shared           unique.Handle[sharedFields]
	node             interned
	podGroup         interned
	created, started int64 // Unix seconds; 0 if unknown
	bound            int64 // Unix seconds; 0 if the pod is not bound
	graceEnd         int64 // Unix seconds; 0 if the pod is not being deleted
	flags            flags
}

// sharedFields are the fields that usually are equal for all pods of a workload.
type sharedFields struct {
	controller   Owner
	group        string
	milli        workload.Milli
	resource     corev1.ResourceName
	pool         string
	workloadType v1alpha1.WorkloadType
	project      string
	createdBy    string
	maxRuntime   period.Duration
}

type flags uint8

const (
	flagRunning flags = 1 << iota
	flagUnreadable
	flagQueued
	flagNonPreemptible
	flagAdmitted
)

func (f flags) has(one flags) bool { return f&one != 0 }

func (f *flags) set(one flags, on bool) {
	if on {
		*f |= one
	}
}

// record is a compactPod with its positions in the indices. A stored record is replaced, not
// changed.
type record struct {
	compactPod
	positions [indexCount]int32
}

// internName copies a pod's name and UID into one string, so that they do not keep the
// decoded pod in memory.
func internName(name string, uid types.UID) (string, string) {
	both := strings.Join([]string{name, string(uid)}, "")
	return both[:len(name)], both[len(name):]
}

func (p *compactPod) key() podKey { return podKey{p.namespace, p.name} }

func (p *compactPod) toPod() *Pod {
	shared := p.shared.Value()
	return &Pod{
		Namespace: p.namespace.Value(), Name: p.name, UID: types.UID(p.uid),
		Node: p.node.Value(), Controller: shared.controller, Group: shared.group, PodGroup: p.podGroup.Value(),
		Running: p.flags.has(flagRunning), Deleting: p.graceEnd != 0, Unreadable: p.flags.has(flagUnreadable),
		Queued: p.flags.has(flagQueued), Admitted: p.flags.has(flagAdmitted), NonPreemptible: p.flags.has(flagNonPreemptible),
		CreatedAt: fromUnixSeconds(p.created), StartedAt: fromUnixSeconds(p.started), BoundAt: fromUnixSeconds(p.bound),
		GraceEndsAt: fromUnixSeconds(p.graceEnd),
		Milli:       shared.milli, QuotaResource: shared.resource, Pool: shared.pool, WorkloadType: shared.workloadType, Project: shared.project,
		CreatedBy: shared.createdBy, MaxRuntime: shared.maxRuntime,
	}
}

func fromUnixSeconds(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// The indices whose positions each record holds.
const (
	namespaceIndex = iota
	controllerIndex
	nodeIndex
	indexCount
)

// index finds the records of a key. It is a map of slices in which each record holds its
// position, because a map for each key would take more memory than the records.
type index[K comparable] struct {
	slot    int
	records map[K][]*record
}

func newIndex[K comparable](slot int) index[K] {
	return index[K]{slot: slot, records: map[K][]*record{}}
}

// add adds r under k. It ignores the zero key.
func (x *index[K]) add(k K, r *record) {
	var none K
	if k == none {
		return
	}
	r.positions[x.slot] = int32(len(x.records[k])) // #nosec G115 -- no cluster has 2 billion pods
	x.records[k] = append(x.records[k], r)
}

// remove removes r from k, and moves the last record to its position.
func (x *index[K]) remove(k K, r *record) {
	all := x.records[k]
	at := int(r.positions[x.slot])
	if at >= len(all) || all[at] != r {
		return // not added, because its key was zero
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
