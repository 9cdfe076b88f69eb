// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"
	"strconv"

	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// take returns a part without what the steps lead to from it, and whether that is
// a change; what it was given stays as it is. What is not of a pod's form has
// nothing to take out.
func (t *taker) take(f *podschema.Field, typ *podschema.Type, v any, steps []step, at filled.Place, s spot) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		switch typ.Kind {
		case podschema.Struct:
			return t.fromStruct(typ, v, steps, at.At(v), s)
		case podschema.Dict:
			return t.fromDict(f, v, steps[0], at, s)
		}
	case []any:
		if typ.Kind == podschema.List {
			return t.fromList(f, typ, v, steps, at, s)
		}
	}
	return v, false
}

func (t *taker) fromStruct(typ *podschema.Type, object map[string]any, steps []step, at filled.Place, s spot) (any, bool) {
	next := &steps[0]
	in := object[next.name]
	if in == nil {
		return object, false
	}
	t.enter(next.name, isField)
	defer t.leave()
	below := s.below(next.name, isField, next.field)
	out, changed := any(nil), false
	if len(steps) > 1 {
		out, changed = t.take(next.field, next.typ, in, steps[1:], at, below)
	} else if t.cluster.Authored(next.field, at, in) {
		changed = t.goes(below, in)
		if standardTolerations(next.field) {
			out = keepStandard(nil, in)
		}
	}
	if !changed {
		return object, false
	}
	after := clone(object)
	if empty(out) {
		delete(after, next.name)
	} else {
		after[next.name] = out
	}
	t.leave()
	for _, m := range couple(typ, object, after, s.node) {
		if !t.silent {
			t.note(nil, t.policies, t.path()+m.path)
		}
	}
	t.enter(next.name, isField)
	return after, true
}

// empty tells whether nothing is left of a list or a dict. Of a struct that is
// something: an emptyDir is one.
func empty(v any) bool {
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
}

func (t *taker) fromDict(f *podschema.Field, dict map[string]any, step step, at filled.Place, s spot) (any, bool) {
	names := []string{step.name}
	if step.all {
		names = sortedKeys(dict)
	}
	after := dict
	for _, name := range names {
		v := dict[name]
		if v == nil || t.cluster.Filled(f, at.Of(name), v) {
			continue
		}
		t.enter(name, isEntry)
		if t.goes(s.below(name, isEntry, f), v) {
			if value.Same(after, dict) {
				after = clone(dict)
			}
			delete(after, name)
		}
		t.leave()
	}
	switch {
	case value.Same(after, dict):
		return dict, false
	case len(after) == 0:
		return nil, true
	}
	return after, true
}

func (t *taker) fromList(f *podschema.Field, list *podschema.Type, elements []any, steps []step, at filled.Place, s spot) (any, bool) {
	var after []any // once something changed
	for i, element := range elements {
		out, changed := t.fromElement(f, list, i, element, steps, at, s)
		if changed && after == nil {
			after = slices.Clone(elements[:i])
		}
		if after != nil && out != nil {
			after = append(after, out)
		}
	}
	if after == nil {
		return elements, false
	}
	return after, true
}

// fromElement returns the element as it shall be, nil if it shall go.
func (t *taker) fromElement(f *podschema.Field, list *podschema.Type, i int, element any, steps []step, at filled.Place, s spot) (any, bool) {
	in := at.In(f, value.Map(element))
	if !steps[0].chooses(t.compare, i, element, in) {
		return element, false
	}
	key, keyed := "", false
	if list.Associative() {
		key, keyed = keyOf(list, element)
	}
	var below spot
	if keyed {
		below = s.below(key, isElement, f)
	} else {
		key = strconv.Itoa(i)
		below = s.below("", isElement, f)
	}
	t.enter(key, isElement)
	defer t.leave()
	if len(steps) > 1 {
		return t.take(f, list.Elem, element, steps[1:], in, below)
	}
	if t.cluster.AuthoredElement(f, at, element) && t.goes(below, element) {
		return nil, true
	}
	return element, false
}
