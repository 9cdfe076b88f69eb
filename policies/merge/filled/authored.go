// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	"iter"
	"strconv"

	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// Authored tells whether a part of the pod has anything that its author wrote.
func (c Cluster) Authored(field *podschema.Field, at Place, v any) bool {
	for range c.leaves(field, at, v) {
		return true
	}
	return false
}

// AuthoredElement is Authored for one element of the list field, which stands at
// the place.
func (c Cluster) AuthoredElement(list *podschema.Field, at Place, element any) bool {
	found := false
	w := walk{c, func(string, any) bool { found = true; return false }}
	w.elements(list, list.Type, at, "", []any{element})
	return found
}

// leaves are the paths of what the author wrote in the field, and the values.
func (c Cluster) leaves(field *podschema.Field, at Place, v any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		w := walk{c, yield}
		w.field(field, at, field.Name, v)
	}
}

// walk goes through a part of the pod until yield returns false.
type walk struct {
	cluster Cluster
	yield   func(path string, v any) bool
}

func (w walk) field(field *podschema.Field, at Place, path string, v any) bool {
	if field.Type.Kind == podschema.Dict {
		return w.entries(field, at, path, v)
	}
	return w.cluster.Open(field, at, v) || w.inside(field, field.Type, at, path, v)
}

func (w walk) entries(field *podschema.Field, at Place, path string, v any) bool {
	entries, ok := v.(map[string]any)
	if !ok {
		return v == nil || w.yield(path, v)
	}
	for name, entry := range entries {
		if !w.cluster.Filled(field, at.Of(name), entry) && !w.yield(path+"["+name+"]", entry) {
			return false
		}
	}
	return true
}

// inside is about a value that as a whole is not open.
func (w walk) inside(field *podschema.Field, t *podschema.Type, at Place, path string, v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if t.Kind == podschema.Struct {
			return w.fields(t, at.At(v), path, v)
		}
	case []any:
		if t.Kind == podschema.List {
			return w.elements(field, t, at, path, v)
		}
	}
	return w.yield(path, v)
}

func (w walk) fields(t *podschema.Type, at Place, path string, v map[string]any) bool {
	for name, in := range v {
		field, path := t.Field(name), path+"."+name
		if field == nil && !w.yield(path, in) || field != nil && !w.field(field, at, path, in) {
			return false
		}
	}
	return true
}

func (w walk) elements(field *podschema.Field, t *podschema.Type, at Place, path string, v []any) bool {
	for i, element := range v {
		// What alone would leave the list open does so beside others too.
		if field != nil && w.cluster.Filled(field, at, []any{element}) {
			continue
		}
		at := at
		if m := value.Map(element); m != nil {
			at = at.In(field, m)
		}
		if !w.element(t, at, path+"["+strconv.Itoa(i)+"]", element) {
			return false
		}
	}
	return true
}

// element of an atomic list is its author's though nothing is in it: an empty node
// selector term matches no node.
func (w walk) element(list *podschema.Type, at Place, path string, v any) bool {
	none := true
	inner := walk{w.cluster, func(path string, v any) bool {
		none = false
		return w.yield(path, v)
	}}
	if !inner.inside(nil, list.Elem, at, path, v) {
		return false
	}
	return !none || !list.Atomic || w.yield(path, v)
}
