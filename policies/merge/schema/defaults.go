// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"iter"
	"strconv"
)

// ClusterDefaults describes the defaults that differ between clusters. The zero value has the
// defaults of Kubernetes.
type ClusterDefaults struct {
	// DefaultPriorityClass is the name of the PriorityClass with globalDefault; empty if
	// there is none.
	DefaultPriorityClass string
}

// IsOpen reports whether the author left a field open: it is absent, or what the API
// server sets.
func (c ClusterDefaults) IsOpen(field *Field, at Location, v any) bool {
	return IsAbsent(field, v) || c.IsDefaulted(field, at, v)
}

// IsDefaulted reports whether v is what the API server sets at this location. Maps are
// checked entry by entry.
func (c ClusterDefaults) IsDefaulted(field *Field, at Location, v any) bool {
	rule, ok := rulesByField[field]
	return ok && rule(c, at, v)
}

// IsAbsent reports whether a field is absent to Kubernetes: null, or the zero value of a
// type that does not distinguish zero from absent.
func IsAbsent(field *Field, v any) bool {
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
	zero, ok := AsInt64(v)
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
	spec := AsMap(p.Object["spec"])
	if template := AsMap(spec["template"]); template != nil { // a pod's spec has no such field
		return AsMap(template["spec"])
	}
	return spec
}

// AtStruct returns the location of the fields of parent, which is at p.
func (p Location) AtStruct(parent map[string]any) Location {
	p.Parent, p.Entry = parent, ""
	return p
}

// AtElement returns the location of the fields of a list element. The list is at p.
func (p Location) AtElement(list *Field, element map[string]any) Location {
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
func IsContainerList(f *Field) bool { return f != nil && containerLists[f.ID()] }

// IsAuthored reports whether a part contains anything that its author wrote.
func (c ClusterDefaults) IsAuthored(field *Field, at Location, v any) bool {
	for range c.authoredLeaves(field, at, v) {
		return true
	}
	return false
}

// IsAuthoredElement is IsAuthored for one element of a list, which is at the location.
func (c ClusterDefaults) IsAuthoredElement(list *Field, at Location, element any) bool {
	found := false
	w := walker{c, func(string, any) bool { found = true; return false }}
	w.elements(list, list.Type, at, "", []any{element})
	return found
}

// authoredLeaves yields the paths and values that the author wrote in a field.
func (c ClusterDefaults) authoredLeaves(field *Field, at Location, v any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		w := walker{c, yield}
		w.field(field, at, field.Name, v)
	}
}

// walker walks through a part of the pod until yield returns false.
type walker struct {
	cluster ClusterDefaults
	yield   func(path string, v any) bool
}

func (w walker) field(field *Field, at Location, path string, v any) bool {
	if field.Type.Kind == KindMap {
		return w.entries(field, at, path, v)
	}
	return w.cluster.IsOpen(field, at, v) || w.nested(field, field.Type, at, path, v)
}

func (w walker) entries(field *Field, at Location, path string, v any) bool {
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
func (w walker) nested(field *Field, t *Type, at Location, path string, v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if t.Kind == KindStruct {
			return w.fields(t, at.AtStruct(v), path, v)
		}
	case []any:
		if t.Kind == KindList {
			return w.elements(field, t, at, path, v)
		}
	}
	return w.yield(path, v)
}

func (w walker) fields(t *Type, at Location, path string, v map[string]any) bool {
	for name, in := range v {
		field, path := t.Field(name), path+"."+name
		if field == nil && !w.yield(path, in) || field != nil && !w.field(field, at, path, in) {
			return false
		}
	}
	return true
}

func (w walker) elements(field *Field, t *Type, at Location, path string, v []any) bool {
	for i, element := range v {
		// An element that alone would leave the list open does so beside others too.
		if field != nil && w.cluster.IsDefaulted(field, at, []any{element}) {
			continue
		}
		at := at
		if m := AsMap(element); m != nil {
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
func (w walker) element(list *Type, at Location, path string, v any) bool {
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
