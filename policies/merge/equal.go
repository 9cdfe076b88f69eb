// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// comparison of values as Kubernetes would read them: quantities by amount, and a
// field that is left out like one with what the API server fills in. Without that
// no override of such a value would ever be done with.
type comparison struct{ cluster filled.Cluster }

// nowhere is the place of values that are in no object yet.
var nowhere filled.Place

func (c comparison) types(t *podschema.Type, a, b any, at filled.Place) bool {
	switch t.Kind {
	case podschema.Quantity:
		return value.SameQuantity(a, b)
	case podschema.Struct:
		m, ok := a.(map[string]any)
		o, also := b.(map[string]any)
		if ok && also {
			return c.structs(t, m, o, at)
		}
	case podschema.Dict:
		m, ok := a.(map[string]any)
		o, also := b.(map[string]any)
		if ok && also {
			return c.dicts(t, m, o, at)
		}
	case podschema.List:
		l, ok := a.([]any)
		o, also := b.([]any)
		if ok && also {
			return c.lists(t, l, o, at)
		}
	}
	return value.Equal(a, b)
}

func (c comparison) structs(t *podschema.Type, a, b map[string]any, at filled.Place) bool {
	for name, v := range a {
		if !c.fields(t.Field(name), name, a, b, v, b[name], at) {
			return false
		}
	}
	for name, v := range b {
		if _, seen := a[name]; !seen && !c.fields(t.Field(name), name, a, b, nil, v, at) {
			return false
		}
	}
	return true
}

// fields compares one field of the structs in and other.
func (c comparison) fields(f *podschema.Field, name string, in, other map[string]any, a, b any, at filled.Place) bool {
	if f == nil { // newer than our schema
		_, ok := in[name]
		_, also := other[name]
		return ok == also && value.Equal(a, b)
	}
	switch absent, also := filled.Absent(f, a), filled.Absent(f, b); {
	case absent && also:
		return true
	case absent:
		return c.cluster.Filled(f, at.At(other), b)
	case also:
		return c.cluster.Filled(f, at.At(in), a)
	}
	return c.types(f.Type, a, b, at)
}

func (c comparison) dicts(t *podschema.Type, a, b map[string]any, at filled.Place) bool {
	if len(a) != len(b) {
		return false
	}
	for key, v := range a {
		w, ok := b[key]
		if !ok || !c.types(t.Elem, v, w, at) {
			return false
		}
	}
	return true
}

func (c comparison) lists(t *podschema.Type, a, b []any, at filled.Place) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !c.types(t.Elem, a[i], b[i], at) {
			return false
		}
	}
	return true
}

// index is where in the list an element equal to v stands, and -1 if nowhere.
func (c comparison) index(t *podschema.Type, list []any, v any, at filled.Place) int {
	for i := range list {
		if c.types(t.Elem, list[i], v, at) {
			return i
		}
	}
	return -1
}
