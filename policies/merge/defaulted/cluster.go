// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package filled tells what the author of a pod or a Job left open.
//
// Enters: a value of one, and where it stands. Leaves: whether it is absent or
// equals what the API server itself fills in before admission webhooks see the
// pod: by its defaults, and by the admission plugins that are on as Kubernetes is
// shipped (LimitRanger, ServiceAccount, Priority, DefaultTolerationSeconds,
// RuntimeClass' overhead). An author who wrote the very same value counts as
// having left it open, since nobody can tell.
//
// The table is held against a real API server by the tests: what that adds to a
// pod is open, all else is not. Three things that it adds cannot be told from the
// pod, and so count as the author's: the ServiceAccount's imagePullSecrets, and a
// RuntimeClass' node selector and tolerations.
//
// It never changes an object and never reads the cluster.
package defaulted

import (
	"iter"
	"strconv"

	"sluice.dev/policies/merge/schema"
)

// Cluster is what the API server fills in that differs from cluster to cluster.
// The zero Cluster is one as shipped.
type Cluster struct {
	// DefaultPriorityClass is the name of the PriorityClass with globalDefault;
	// empty if there is none.
	DefaultPriorityClass string
}

// IsOpen tells whether the author left a field open: it is absent, or what the API
// server fills in there.
func (c Cluster) IsOpen(field *schema.Field, at Location, v any) bool {
	return IsAbsent(field, v) || c.IsDefaulted(field, at, v)
}

// IsDefaulted tells whether v is what the API server fills in there. For a dict it is
// asked about each entry.
func (c Cluster) IsDefaulted(field *schema.Field, at Location, v any) bool {
	rule, ok := rulesByField[field]
	return ok && rule(c, at, v)
}

// IsAbsent tells whether to Kubernetes the field is not there: it is null, or has
// the zero value of a type that cannot tell zero from nothing.
func IsAbsent(field *schema.Field, v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0 && !field.Pointer
	case []any:
		return len(v) == 0
	case string:
		return v == "" && !field.Pointer
	case bool:
		return !v && !field.Pointer
	}
	zero, ok := schema.AsInt64(v)
	return ok && zero == 0 && !field.Pointer
}

// Location is where a value stands: as much of its surroundings as is needed to tell
// who wrote it. The zero Place is nowhere, where only fixed values are known.
type Location struct {
	// Object is the whole pod, pod template or Job.
	Object map[string]any
	// List is the list of containers, as the field is called, and Container the
	// one of it; both empty outside of containers.
	List      string
	Container map[string]any
	// Parent is the struct whose field it is, or whose dict it is an entry of.
	Parent map[string]any
	// Entry is the key in that dict.
	Entry string
}

// spec returns the pod's spec; of a Job that of its template.
func (p Location) spec() map[string]any {
	spec := schema.AsMap(p.Object["spec"])
	if template := schema.AsMap(spec["template"]); template != nil { // a pod's spec has no such field
		return schema.AsMap(template["spec"])
	}
	return spec
}

// AtStruct returns the place of the fields of parent, which stands at p.
func (p Location) AtStruct(parent map[string]any) Location {
	p.Parent, p.Entry = parent, ""
	return p
}

// AtElement returns the place of the fields of an element of the list field, which
// stands at p.
func (p Location) AtElement(list *schema.Field, element map[string]any) Location {
	if list != nil && containerLists[list.ID()] {
		p.List, p.Container = list.Name, element
	}
	return p.AtStruct(element)
}

// AtEntry returns the place of a dict's entry.
func (p Location) AtEntry(entry string) Location {
	p.Entry = entry
	return p
}

var containerLists = map[string]bool{
	"PodSpec.containers":          true,
	"PodSpec.initContainers":      true,
	"PodSpec.ephemeralContainers": true,
}

// IsContainerList tells whether the field holds containers.
func IsContainerList(f *schema.Field) bool { return f != nil && containerLists[f.ID()] }

// IsAuthored tells whether a part of the pod has anything that its author wrote.
func (c Cluster) IsAuthored(field *schema.Field, at Location, v any) bool {
	for range c.authoredLeaves(field, at, v) {
		return true
	}
	return false
}

// IsAuthoredElement is Authored for one element of the list field, which stands at
// the place.
func (c Cluster) IsAuthoredElement(list *schema.Field, at Location, element any) bool {
	found := false
	w := walker{c, func(string, any) bool { found = true; return false }}
	w.elements(list, list.Type, at, "", []any{element})
	return found
}

// authoredLeaves are the paths of what the author wrote in the field, and the values.
func (c Cluster) authoredLeaves(field *schema.Field, at Location, v any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		w := walker{c, yield}
		w.field(field, at, field.Name, v)
	}
}

// walker goes through a part of the pod until yield returns false.
type walker struct {
	cluster Cluster
	yield   func(path string, v any) bool
}

func (w walker) field(field *schema.Field, at Location, path string, v any) bool {
	if field.Type.Kind == schema.KindMap {
		return w.entries(field, at, path, v)
	}
	return w.cluster.IsOpen(field, at, v) || w.nested(field, field.Type, at, path, v)
}

func (w walker) entries(field *schema.Field, at Location, path string, v any) bool {
	entries, ok := v.(map[string]any)
	if !ok {
		return v == nil || w.yield(path, v)
	}
	for name, entry := range entries {
		if !w.cluster.IsDefaulted(field, at.AtEntry(name), entry) && !w.yield(path+"["+name+"]", entry) {
			return false
		}
	}
	return true
}

// nested is about a value that as a whole is not open.
func (w walker) nested(field *schema.Field, t *schema.Type, at Location, path string, v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if t.Kind == schema.KindStruct {
			return w.fields(t, at.AtStruct(v), path, v)
		}
	case []any:
		if t.Kind == schema.KindList {
			return w.elements(field, t, at, path, v)
		}
	}
	return w.yield(path, v)
}

func (w walker) fields(t *schema.Type, at Location, path string, v map[string]any) bool {
	for name, in := range v {
		field, path := t.Field(name), path+"."+name
		if field == nil && !w.yield(path, in) || field != nil && !w.field(field, at, path, in) {
			return false
		}
	}
	return true
}

func (w walker) elements(field *schema.Field, t *schema.Type, at Location, path string, v []any) bool {
	for i, element := range v {
		// What alone would leave the list open does so beside others too.
		if field != nil && w.cluster.IsDefaulted(field, at, []any{element}) {
			continue
		}
		at := at
		if m := schema.AsMap(element); m != nil {
			at = at.AtElement(field, m)
		}
		if !w.element(t, at, path+"["+strconv.Itoa(i)+"]", element) {
			return false
		}
	}
	return true
}

// element of an atomic list is its author's though nothing is in it: an empty node
// selector term matches no node.
func (w walker) element(list *schema.Type, at Location, path string, v any) bool {
	none := true
	inner := walker{w.cluster, func(path string, v any) bool {
		none = false
		return w.yield(path, v)
	}}
	if !inner.nested(nil, list.Elem, at, path, v) {
		return false
	}
	return !none || !list.Atomic || w.yield(path, v)
}
