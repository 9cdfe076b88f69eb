// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// shared is a text of which there are few; equal ones are there once, for as long
// as any is in use.
type shared = unique.Handle[string]

// facts are a Pod as it is kept. Facts are compared with ==.
type facts struct {
	// name and uid are parts of one text.
	name, uid string
	namespace shared
	// more is what pods of one workload have in common.
	more             unique.Handle[common]
	node             shared
	created, started int64 // seconds since 1970; 0 is not known
	flags            flags
}

// common is what differs between the pods of one workload, or its replicas, only
// by accident.
type common struct {
	controller Owner
	group      string
	milli      workload.Milli
	pool       string
	kind       v1alpha1.WorkloadType
	project    string
	createdBy  string
	maxRuntime period.Duration
}

type flags uint8

const (
	running flags = 1 << iota
	deleting
	unreadable
	queued
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
	facts
	at [indices]int32
}

// named is a pod's name and UID as one text, cut from whatever they were part of.
func named(name string, uid types.UID) (string, string) {
	both := strings.Join([]string{name, string(uid)}, "")
	return both[:len(name)], both[len(name):]
}

func (f *facts) key() key { return key{f.namespace, f.name} }

// pod is the record as others see it.
func (f *facts) pod() *Pod {
	more := f.more.Value()
	return &Pod{
		Namespace: f.namespace.Value(), Name: f.name, UID: types.UID(f.uid),
		Node: f.node.Value(), Controller: more.controller, Group: more.group,
		Running: f.flags.has(running), Deleting: f.flags.has(deleting), Unreadable: f.flags.has(unreadable),
		Queued:    f.flags.has(queued),
		CreatedAt: instant(f.created), StartedAt: instant(f.started),
		Milli: more.milli, Pool: more.pool, WorkloadType: more.kind, Project: more.project,
		CreatedBy: more.createdBy, MaxRuntime: more.maxRuntime,
	}
}

func instant(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
