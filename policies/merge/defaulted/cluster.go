// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package defaulted decides which parts of a pod or a Job its author left open.
//
// It takes a value and its location, and reports whether it is absent or equals what the
// API server sets before admission webhooks see the pod. That includes the defaults, and
// the admission plugins that are on by default (LimitRanger, ServiceAccount, Priority,
// DefaultTolerationSeconds, RuntimeClass). An author's value that equals the default
// counts as open too, since the two cannot be distinguished.
//
// Tests compare the table with a real API server: what the server adds is open,
// everything else is not. Three additions cannot be recognized in the pod and count as
// the author's: the ServiceAccount's imagePullSecrets, and the node selector and
// tolerations of a RuntimeClass. The package never changes an object and never reads the
// cluster.
package defaulted

import (
	"iter"
	"strconv"

	"sluice.dev/policies/merge/schema"
)

// Cluster describes the defaults that differ between clusters. The zero Cluster has the
// defaults of Kubernetes.
type Cluster struct {
	// DefaultPriorityClass is the name of the PriorityClass with globalDefault; empty if
	// there is none.
	DefaultPriorityClass string
}

// IsOpen reports whether the author left a field open: it is absent, or what the API
// server sets.
func (c Cluster) IsOpen(field *schema.Field, at Location, v any) bool {
	return IsAbsent(field, v) || c.IsDefaulted(field, at, v)
}

// IsDefaulted reports whether v is what the API server sets at this location. Maps are
// checked entry by entry.
func (c Cluster) IsDefaulted(field *schema.Field, at Location, v any) bool {
	rule, ok := rulesByField[field]
	return ok && rule(c, at, v)
}

// IsAbsent reports whether a field is absent to Kubernetes: null, or the zero value of a
// type that does not distinguish zero from absent.
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

// Location is the location of a value, with the surroundings that help to decide who
// wrote it. The zero Location has none; only fixed defaults apply there.
type Location struct {
	// Object is the whole pod, pod template or Job.
	Object map[string]any
	// List is the name of a list of containers, and Container one of its elements; both
	// are empty outside of containers.
	List      string
	Container map[string]any
	// Parent is the struct that contains the field, or the map.
	Parent map[string]any
	// Entry is the key in the map.
	Entry string
}

// spec returns the pod's spec; for a Job that of its template.
func (p Location) spec() map[string]any {
	spec := schema.AsMap(p.Object["spec"])
	if template := schema.AsMap(spec["template"]); template != nil { // a pod's spec has no such field
		return schema.AsMap(template["spec"])
	}
	return spec
}

// AtStruct returns the location of the fields of parent, which is at p.
func (p Location) AtStruct(parent map[string]any) Location {
	p.Parent, p.Entry = parent, ""
	return p
}

// AtElement returns the location of the fields of a list element. The list is at p.
func (p Location) AtElement(list *schema.Field, element map[string]any) Location {
	if list != nil && containerLists[list.ID()] {
		p.List, p.Container = list.Name, element
	}
	return p.AtStruct(element)
}

// AtEntry returns the location of a map's entry.
func (p Location) AtEntry(entry string) Location {
	p.Entry = entry
	return p
}

var containerLists = map[string]bool{
	"PodSpec.containers":          true,
	"PodSpec.initContainers":      true,
	"PodSpec.ephemeralContainers": true,
}

// IsContainerList reports whether the field is a list of containers.
func IsContainerList(f *schema.Field) bool { return f != nil && containerLists[f.ID()] }

// IsAuthored reports whether a part contains anything that its author wrote.
func (c Cluster) IsAuthored(field *schema.Field, at Location, v any) bool {
	for range c.authoredLeaves(field, at, v) {
		return true
	}
	return false
}

// IsAuthoredElement is IsAuthored for one element of a list, which is at the location.
func (c Cluster) IsAuthoredElement(list *schema.Field, at Location, element any) bool {
	found := false
	w := walker{c, func(string, any) bool { found = true; return false }}
	w.elements(list, list.Type, at, "", []any{element})
	return found
}

// authoredLeaves yields the paths and values that the author wrote in a field.
func (c Cluster) authoredLeaves(field *schema.Field, at Location, v any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		w := walker{c, yield}
		w.field(field, at, field.Name, v)
	}
}

// walker walks through a part of the pod until yield returns false.
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

// nested visits a value that is not open as a whole.
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
		// An element that alone would leave the list open does so beside others too.
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

// element visits an element. An empty element of an atomic list is the author's: an empty
// node selector term matches no node.
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
