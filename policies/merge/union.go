// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"maps"

	"sluice.dev/policies/merge/defaulted"
	"sluice.dev/policies/merge/schema"
)

// A union is one leaf whose value is a map of its members: at most one that is
// set, or only nulls, each of which removes that member where it is the one.

// addUnion reads the members that a policy names of n's union.
func (b *planBuilder) addUnion(n *node, members map[string]any, m mode) {
	var set string
	ok := true
	for _, name := range sortedKeys(members) {
		field, v := n.typ.Field(name), members[name]
		switch {
		case v == nil && m == modeDefault:
			b.addNull(b.child(n, name, fieldNode, field, field.Type), m)
			ok = false
		case v == nil:
		case set != "":
			b.addInvalidChanges(b.policy, n.path(), "has %s and %s, of which a pod can have only one", set, name)
			ok = false
		default:
			set = name
			where, problem := typeMismatch(field.Type, v)
			if problem != "" {
				b.addInvalidChanges(b.policy, n.path()+"."+name+where, "%s", problem)
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
	b.addLeafValue(b.child(n, "", unionNode, n.field, n.typ), m, members, false)
}

// combineUnions makes one of two wants of a union, if both can be had.
func combineUnions(b *planBuilder, n *node, v, w map[string]any) (map[string]any, bool) {
	switch {
	case onlyRemoves(v) && onlyRemoves(w):
		both := maps.Clone(v)
		maps.Copy(both, w)
		return both, true
	case onlyRemoves(v):
		return w, areDisjoint(v, w)
	case onlyRemoves(w):
		return v, areDisjoint(v, w)
	}
	if !b.equalValues(n, v, w) {
		return nil, false
	}
	if !schema.Equal(v, w) && canonicalJSON(w) < canonicalJSON(v) {
		return w, true
	}
	return v, true
}

// onlyRemoves tells whether a want of a union only removes members.
func onlyRemoves(members map[string]any) bool {
	for _, v := range members {
		if v != nil {
			return false
		}
	}
	return true
}

func areDisjoint(a, b map[string]any) bool {
	for name := range a {
		if _, ok := b[name]; ok {
			return false
		}
	}
	return true
}

// unionMembers are a struct's union fields that are set.
func unionMembers(t *schema.Type, object map[string]any) map[string]any {
	var set map[string]any
	for name, v := range object {
		if f := t.Field(name); f != nil && f.Union && !defaulted.IsAbsent(f, v) {
			if set == nil {
				set = map[string]any{}
			}
			set[name] = v
		}
	}
	return set
}

// applyUnion does what is wanted of the union of the struct before, in out.
func (r *applier) applyUnion(n *node, before, out map[string]any, at defaulted.Location) map[string]any {
	at = at.AtStruct(before)
	have := unionMembers(n.typ, before)
	wanted, ok := r.selectMembers(n, have, at)
	if !ok {
		return out
	}
	if out == nil || schema.IsSameInstance(out, before) {
		out = cloneMap(before)
	}
	for name := range before {
		if f := n.typ.Field(name); f != nil && f.Union {
			delete(out, name)
		}
	}
	maps.Copy(out, wanted)
	return out
}

// selectMembers returns the members that the union shall have, and false if it has them.
func (r *applier) selectMembers(n *node, have map[string]any, at defaulted.Location) (map[string]any, bool) {
	open := r.isUnionOpen(n, have, at)
	n.recordOpen(open)
	w, ok := r.desiredNow(n, open)
	if !ok {
		return nil, false
	}
	wanted := schema.AsMap(w.value)
	if onlyRemoves(wanted) {
		if open || areDisjoint(wanted, have) {
			return nil, false
		}
		wanted = nil
	} else if len(have) == 0 && len(unionMembers(n.typ, wanted)) == 0 || len(have) > 0 && r.compare.equalStructs(n.typ, have, wanted, at) {
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
	r.recordOverwrite(n, w, path, was, is)
	return wanted, true
}

// isUnionOpen tells whether the author chose none of the members. A variable that
// has none has the empty value, which is a choice, unless it is only being made.
func (r *applier) isUnionOpen(n *node, have map[string]any, at defaulted.Location) bool {
	if len(have) == 0 {
		return n.typ.Name != "EnvVar" || r.newElementDepth > 0
	}
	for name, v := range have {
		if !r.cluster.IsDefaulted(n.typ.Field(name), at, v) {
			return false
		}
	}
	return true
}
