// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"maps"

	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// A union is one leaf whose value is a map of its members: at most one that is
// set, or only nulls, each of which removes that member where it is the one.

// union reads the members that a policy names of n's union.
func (b *builder) union(n *node, members map[string]any, m mode) {
	var set string
	ok := true
	for _, name := range sortedKeys(members) {
		field, v := n.typ.Field(name), members[name]
		switch {
		case v == nil && m == asDefault:
			b.null(b.child(n, name, isField, field, field.Type), m)
			ok = false
		case v == nil:
		case set != "":
			b.intent(b.policy, n.path(), "has %s and %s, of which a pod can have only one", set, name)
			ok = false
		default:
			set = name
			where, problem := misfit(field.Type, v)
			if problem != "" {
				b.intent(b.policy, n.path()+"."+name+where, "%s", problem)
				ok = false
			}
		}
	}
	if !ok {
		return
	}
	if set != "" {
		members = map[string]any{set: members[set]}
	}
	b.wanted(b.child(n, "", isUnion, n.field, n.typ), m, members, false)
}

// reconcileUnions makes one of two wants of a union, if both can be had.
func reconcileUnions(b *builder, n *node, v, w map[string]any) (map[string]any, bool) {
	switch {
	case removes(v) && removes(w):
		both := maps.Clone(v)
		maps.Copy(both, w)
		return both, true
	case removes(v):
		return w, disjoint(v, w)
	case removes(w):
		return v, disjoint(v, w)
	}
	if !b.same(n, v, w) {
		return nil, false
	}
	if !value.Equal(v, w) && canonical(w) < canonical(v) {
		return w, true
	}
	return v, true
}

// removes tells whether a want of a union only removes members.
func removes(members map[string]any) bool {
	for _, v := range members {
		if v != nil {
			return false
		}
	}
	return true
}

func disjoint(a, b map[string]any) bool {
	for name := range a {
		if _, ok := b[name]; ok {
			return false
		}
	}
	return true
}

// members are a struct's union fields that are set.
func members(t *podschema.Type, object map[string]any) map[string]any {
	var set map[string]any
	for name, v := range object {
		if f := t.Field(name); f != nil && f.Union && !filled.Absent(f, v) {
			if set == nil {
				set = map[string]any{}
			}
			set[name] = v
		}
	}
	return set
}

// choice does what is wanted of the union of the struct before, in out.
func (r *run) choice(n *node, before, out map[string]any, at filled.Place) map[string]any {
	at = at.At(before)
	have := members(n.typ, before)
	wanted, ok := r.chosen(n, have, at)
	if !ok {
		return out
	}
	if out == nil || value.Same(out, before) {
		out = clone(before)
	}
	for name := range before {
		if f := n.typ.Field(name); f != nil && f.Union {
			delete(out, name)
		}
	}
	maps.Copy(out, wanted)
	return out
}

// chosen returns the members that the union shall have, and false if it has them.
func (r *run) chosen(n *node, have map[string]any, at filled.Place) (map[string]any, bool) {
	open := r.openUnion(n, have, at)
	n.judge(open)
	w, ok := r.due(n, open)
	if !ok {
		return nil, false
	}
	wanted := value.Map(w.value)
	if removes(wanted) {
		if open || disjoint(wanted, have) {
			return nil, false
		}
		wanted = nil
	} else if len(have) == 0 && len(members(n.typ, wanted)) == 0 || len(have) > 0 && r.compare.structs(n.typ, have, wanted, at) {
		return nil, false
	}
	if have == nil && !open {
		have = map[string]any{"value": ""} // a variable's
	}
	path, was, is := n.path(), any(have), any(wanted)
	for name := range have {
		if _, same := wanted[name]; len(have) == 1 && (same || len(wanted) == 0) {
			path, was, is = path+"."+name, have[name], wanted[name]
		}
	}
	r.changed(n, w, path, was, is)
	return wanted, true
}

// openUnion tells whether the author chose none of the members. A variable that
// has none has the empty value, which is a choice, unless it is only being made.
func (r *run) openUnion(n *node, have map[string]any, at filled.Place) bool {
	if len(have) == 0 {
		return n.typ.Name != "EnvVar" || r.making > 0
	}
	for name, v := range have {
		if !r.cluster.Filled(n.typ.Field(name), at, v) {
			return false
		}
	}
	return true
}
