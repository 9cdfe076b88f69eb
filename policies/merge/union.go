// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"maps"

	"sluice.dev/policies/merge/schema"
)

// addUnion reads the members that a policy sets of n's union. A union is one leaf. Its
// value is a map of members: either one member that is set, or only nulls, each of which
// removes that member.
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

// combineUnions combines two values of a union, if they are compatible.
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

// onlyRemoves reports whether a value of a union only removes members.
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

// unionMembers returns a struct's union fields that are set.
func unionMembers(t *schema.Type, object map[string]any) map[string]any {
	var set map[string]any
	for name, v := range object {
		if f := t.Field(name); f != nil && f.Union && !schema.IsAbsent(f, v) {
			if set == nil {
				set = map[string]any{}
			}
			set[name] = v
		}
	}
	return set
}

// applyUnion applies the plan for the union of the struct before to its copy out.
func (r *applier) applyUnion(n *node, before, out map[string]any, at schema.Location) map[string]any {
	at = at.AtStruct(before)
	current := unionMembers(n.typ, before)
	desired, ok := r.selectMembers(n, current, at)
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
	maps.Copy(out, desired)
	return out
}

// selectMembers returns the new members of the union, and false if nothing changes.
func (r *applier) selectMembers(n *node, current map[string]any, at schema.Location) (map[string]any, bool) {
	open := r.isUnionOpen(n, current, at)
	n.recordOpen(open)
	w, ok := r.desiredNow(n, open)
	if !ok {
		return nil, false
	}
	desired := schema.AsMap(w.value)
	if onlyRemoves(desired) {
		if open || areDisjoint(desired, current) {
			return nil, false
		}
		desired = nil
	} else if len(current) == 0 && len(unionMembers(n.typ, desired)) == 0 ||
		len(current) > 0 && r.compare.equalStructs(n.typ, current, desired, at) {
		return nil, false
	}
	if current == nil && !open {
		current = map[string]any{"value": ""} // a variable without a value has the empty one
	}
	path, before, after := n.path(), any(current), any(desired)
	for name := range current {
		if _, same := desired[name]; len(current) == 1 && (same || len(desired) == 0) {
			path, before, after = path+"."+name, current[name], desired[name]
		}
	}
	r.recordOverwrite(n, w, path, before, after)
	return desired, true
}

// isUnionOpen reports whether the author set none of the members. A variable without one
// has the empty value, which counts as set, except in a new element.
func (r *applier) isUnionOpen(n *node, current map[string]any, at schema.Location) bool {
	if len(current) == 0 {
		return n.typ.Name != "EnvVar" || r.newElementDepth > 0
	}
	for name, v := range current {
		if !r.cluster.IsDefaulted(n.typ.Field(name), at, v) {
			return false
		}
	}
	return true
}
