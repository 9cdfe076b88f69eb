// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"sluice.dev/policies/merge/schema"
)

// comparer compares values as Kubernetes does: quantities by amount, and an absent field
// like its default. Otherwise an override of such a value would never be satisfied.
type comparer struct{ cluster schema.ClusterDefaults }

// noLocation is the location of values outside any object.
var noLocation schema.Location

func (c comparer) equal(t *schema.Type, a, b any, at schema.Location) bool {
	switch t.Kind {
	case schema.KindQuantity:
		return schema.EqualQuantities(a, b)
	case schema.KindStruct:
		m, ok := a.(map[string]any)
		o, also := b.(map[string]any)
		if ok && also {
			return c.equalStructs(t, m, o, at)
		}
	case schema.KindMap:
		m, ok := a.(map[string]any)
		o, also := b.(map[string]any)
		if ok && also {
			return c.equalMaps(t, m, o, at)
		}
	case schema.KindList:
		l, ok := a.([]any)
		o, also := b.([]any)
		if ok && also {
			return c.equalLists(t, l, o, at)
		}
	}
	return schema.Equal(a, b)
}

func (c comparer) equalStructs(t *schema.Type, a, b map[string]any, at schema.Location) bool {
	for name, v := range a {
		if !c.equalFields(t.Field(name), name, a, b, v, b[name], at) {
			return false
		}
	}
	for name, v := range b {
		if _, seen := a[name]; !seen && !c.equalFields(t.Field(name), name, a, b, nil, v, at) {
			return false
		}
	}
	return true
}

// equalFields compares one field of the structs in and other.
func (c comparer) equalFields(f *schema.Field, name string, in, other map[string]any, a, b any, at schema.Location) bool {
	if f == nil { // newer than our schema
		_, ok := in[name]
		_, also := other[name]
		return ok == also && schema.Equal(a, b)
	}
	switch absent, also := schema.IsAbsent(f, a), schema.IsAbsent(f, b); {
	case absent && also:
		return true
	case absent:
		return c.cluster.IsDefaulted(f, at.AtStruct(other), b)
	case also:
		return c.cluster.IsDefaulted(f, at.AtStruct(in), a)
	}
	return c.equal(f.Type, a, b, at)
}

func (c comparer) equalMaps(t *schema.Type, a, b map[string]any, at schema.Location) bool {
	if len(a) != len(b) {
		return false
	}
	for key, v := range a {
		w, ok := b[key]
		if !ok || !c.equal(t.Elem, v, w, at) {
			return false
		}
	}
	return true
}

func (c comparer) equalLists(t *schema.Type, a, b []any, at schema.Location) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !c.equal(t.Elem, a[i], b[i], at) {
			return false
		}
	}
	return true
}

// index returns the index of an element equal to v; -1 if there is none.
func (c comparer) index(t *schema.Type, list []any, v any, at schema.Location) int {
	for i := range list {
		if c.equal(t.Elem, list[i], v, at) {
			return i
		}
	}
	return -1
}
