// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"

	"sluice.dev/policies/merge/schema"
)

// applyList visits the elements of an associative list. It keeps the author's order; new
// elements follow.
func (r *applier) applyList(n *node, current any, at schema.Location) (any, bool) {
	list, ok := current.([]any)
	if !ok && current != nil {
		r.addInvalidObject(n.path(), "must be a list, not "+describeKind(current))
		return current, false
	}
	elements, indexes := indexElements(n.typ, list)
	changed, owned := len(elements) != len(list), len(elements) != len(list)
	var removed []int
	for _, child := range n.children {
		i, ok := indexes[child.step]
		if !ok {
			r.reportMissing(child)
			continue
		}
		v, different := r.applyNode(child, elements[i], at.AtElement(n.field, schema.AsMap(elements[i])))
		if !different {
			continue
		}
		if !owned {
			elements, owned = slices.Clone(elements), true
		}
		changed = true
		if elements[i] = v; v == nil {
			removed = append(removed, i)
		}
	}
	slices.Sort(removed)
	for _, i := range slices.Backward(removed) {
		elements = slices.Delete(elements, i, i+1)
	}
	for _, child := range sortNewElements(n.children) {
		if _, exists := indexes[child.step]; !exists && r.isCreatedNow(child) {
			elements = append(slices.Clip(elements), r.newElement(child, at))
			changed = true
		}
	}
	if !changed {
		return current, false
	}
	if len(elements) == 0 {
		return nil, true
	}
	return elements, true
}

// isCreatedNow reports whether this phase creates the element.
func (r *applier) isCreatedNow(child *node) bool {
	switch r.phase {
	case overridePhase:
		return len(child.overridePresence.policies) > 0
	case defaultPhase:
		return len(child.defaultPresence.policies) > 0 && len(child.overridePresence.policies) == 0 && !child.isRemoved() && !child.suppressed
	}
	return false
}

// newElement returns a new element with all values that policies set in it.
func (r *applier) newElement(child *node, at schema.Location) any {
	by := child.defaultPresence.policies
	if r.phase == overridePhase {
		by = child.overridePresence.policies
	}
	r.newElementDepth++
	defer func() { r.newElementDepth-- }()
	if child.typ.IsLeaf() {
		v, _ := r.applyLeaf(child, nil, at)
		return v
	}
	r.recordChange(child, by, child.path())
	var v any = cloneMap(child.keys)
	phase := r.phase
	// An override may apply to an element that a default adds.
	for r.phase = overridePhase; r.phase <= phase; r.phase <<= 1 {
		v, _ = r.applyNode(child, v, at.AtElement(child.field, schema.AsMap(v)))
	}
	r.phase = phase
	return v
}

// reportMissing handles an element that policies write to and that does not exist. If a
// policy names it, it existed in the plan, so a removal deleted it: a conflict.
func (r *applier) reportMissing(child *node) {
	if child.namedBy == nil || r.isCreatedNow(child) {
		return
	}
	path := child.path()
	by := r.removedBy[path]
	if by == nil {
		by = r.removedBy[child.parent.path()]
	}
	if by != nil {
		r.addConflict(path, DesiredValue{Policies: by}, DesiredValue{Policies: child.namedBy, Nested: true})
	}
}

// addAddition reads an element for an atomic list. The lists on its path are known once
// all containers are.
func (b *planBuilder) addAddition(position int, a Addition) {
	steps, ok := b.resolvePath("append", a.Path)
	if !ok {
		return
	}
	path := formatPath("append", a.Path)
	list := steps[len(steps)-1].typ
	switch {
	case slices.ContainsFunc(steps, func(s pathStep) bool { return s.field != nil && s.field.ID() == "NodeSelector.nodeSelectorTerms" }):
		b.addInvalidChanges(b.policy, path, "terms are ORed, so another one would allow more nodes: use nodes")
		return
	case list.Kind == schema.KindList && !list.Atomic:
		b.addInvalidChanges(b.policy, path, "is merged by %s: use defaults or overrides", keyNames(list))
		return
	case list.Kind != schema.KindList:
		b.addInvalidChanges(b.policy, path, "is %s, not a list", list.Kind)
		return
	}
	if where, problem := typeMismatch(list.Elem, a.Value); problem != "" {
		b.addInvalidChanges(b.policy, path, "the element%s %s", where, problem)
		return
	}
	policy := b.policy
	b.elementReads = append(b.elementReads, func() {
		b.policy = policy
		for _, n := range b.resolveSteps(path, []*node{b.root}, steps) {
			n.appends = append(n.appends, appendedElement{policy, position, a.Value})
			n.markPhase(appendPhase)
		}
	})
}

// resolveSteps returns the nodes to which steps lead. Steps cannot lead into a part that
// is replaced as a whole.
func (b *planBuilder) resolveSteps(path string, from []*node, steps []pathStep) []*node {
	for _, s := range steps {
		var to []*node
		for _, n := range from {
			switch {
			case n.typ.IsLeaf() || s.field != nil && s.list == nil && s.field.Union:
				b.addInvalidChanges(b.policy, path, "leads into a part that is replaced as a whole: set all of it in overrides")
				return nil
			case s.list != nil:
				to = append(to, b.matchingElements(n, s)...)
			default:
				to = append(to, b.field(n, s.field))
			}
		}
		from = to
	}
	return from
}

// matchingElements returns the elements that a step selects by key.
func (b *planBuilder) matchingElements(n *node, s pathStep) []*node {
	switch {
	case s.all:
		return b.selectContainers(n, allContainers)
	case s.match == nil:
		return b.selectContainers(n, s.name)
	}
	key, ok := elementKey(n.typ, s.match)
	if !ok || len(s.match) > len(n.typ.Keys) {
		b.addInvalidChanges(b.policy, n.path(), "an element is selected by its %s here, not by %s", keyNames(n.typ), formatValue(s.match))
		return nil
	}
	return b.selectElement(n, key)
}

// appendMissing returns the list with the appended elements, and the policies whose
// elements were missing.
func appendMissing(c comparer, n *node, list []any, at schema.Location) (longer []any, added []string) {
	slices.SortFunc(n.appends, func(a, b appendedElement) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.position, b.position),
			cmp.Compare(canonicalJSON(a.value), canonicalJSON(b.value)))
	})
	longer = list
	for _, a := range n.appends {
		switch i := c.index(n.typ, longer, a.value, at); {
		case i < 0:
			longer = append(slices.Clip(longer), a.value)
			added = addPolicy(added, a.policy)
		case i >= len(list): // another policy appended the same
			added = addPolicy(added, a.policy)
		}
	}
	return longer, added
}

// applyAppends adds appended elements to a list, or node requirements to an affinity.
func (r *applier) applyAppends(n *node, current any, at schema.Location) (any, bool) {
	if len(n.requirements) > 0 {
		made, added := withRequirements(current, n.requirements)
		if len(added) == 0 {
			return current, false
		}
		slices.Sort(added)
		r.recordChange(nil, slices.Compact(added), n.path())
		return made, true
	}
	if _, ok := current.([]any); !ok && current != nil {
		r.addInvalidObject(n.path(), "must be a list, not "+describeKind(current))
		return current, false
	}
	longer, added := appendMissing(r.compare, n, schema.AsList(current), at)
	if len(added) == 0 {
		return current, false
	}
	r.recordChange(nil, added, n.path())
	return longer, true
}
