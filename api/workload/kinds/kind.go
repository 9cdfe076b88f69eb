// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Form is how a verb stops a workload.
type Form string

// The forms of verbs.
const (
	// FormField: a field gets a value.
	FormField Form = "Field"
	// FormMark: an annotation is put on; its presence counts, not its value.
	FormMark Form = "Mark"
	// FormReplicas: the number of replicas becomes 0.
	FormReplicas Form = "Replicas"
	// FormDelete: the object is deleted, since nothing else stops it.
	FormDelete Form = "Delete"
	// FormNever: the object is never touched.
	FormNever Form = "Never"
)

// Verb is what stops a workload. A change of one place in the object is enough,
// so that a mark of ours can be written with it in one patch.
type Verb struct {
	Form Form
	// Path of the field, the annotation or the number; none where Form is
	// FormDelete or FormNever.
	Path []string
	// Stop is the value that stops; for FormField alone.
	Stop any
	// Start is the value that starts again; nil takes the field out.
	Start any
	// Final is true where what was stopped cannot be started again.
	Final bool
}

// Ended says how an object tells that it has come to its end by itself.
type Ended struct {
	// Conditions are those of status.conditions of which one is True then.
	Conditions []string
	// Verdict is a condition that is True or False then, and Unknown before.
	Verdict string
	// Phase is the path of a word that is one of Phases then.
	Phase  []string
	Phases []string
}

// Kind is one row of the table.
type Kind struct {
	schema.GroupKind
	// Resource is the kind's plural in the API: jobs.
	Resource string
	// Verb stops it.
	Verb Verb
	// Templates are the paths of its pod templates; none where it has none that
	// are pod templates. The word * stands for all elements of a list, or all
	// entries of an object; the empty path for the object itself.
	Templates [][]string
	// Ended is how it tells its end; zero for what runs on for ever.
	Ended Ended
	// Busy is the path of the number of pods that it still has, which is 0 or
	// absent once it is stopped; none where it has no such number.
	Busy []string
	// Ordered is true where its controller takes its pods down one by one, and
	// waits for each before the next.
	Ordered bool
	// Queued is true where Kueue may hold it by a Workload of its own, and would
	// start again what was only suspended.
	Queued bool
	// CountedEarly is true where Kueue counts its pod templates before there are
	// pods: what these are charged must stand in the templates.
	CountedEarly bool
}

// Of is the row of a kind; false where the table has none.
func Of(kind schema.GroupKind) (Kind, bool) {
	k, ok := byKind[kind]
	return k, ok
}

// All is the table, in its order.
func All() []Kind { return slices.Clone(table) }

var byKind = func() map[schema.GroupKind]Kind {
	rows := make(map[schema.GroupKind]Kind, len(table))
	for _, k := range table {
		rows[k.GroupKind] = k
	}
	return rows
}()
