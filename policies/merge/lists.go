// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"

	"sluice.dev/policies/merge/defaulted"
	"sluice.dev/policies/merge/schema"
)

// applyList visits the elements of an associative list. The author's order is kept, new
// elements follow.
func (r *applier) applyList(n *node, have any, at defaulted.Location) (any, bool) {
	given, ok := have.([]any)
	if !ok && have != nil {
		r.addInvalidObject(n.path(), "must be a list, not "+describeKind(have))
		return have, false
	}
	elements, where := indexElements(n.typ, given)
	changed, owned := len(elements) != len(given), len(elements) != len(given)
	var gone []int
	for _, kid := range n.children {
		i, ok := where[kid.step]
		if !ok {
			r.reportMissing(kid)
			continue
		}
		v, different := r.applyNode(kid, elements[i], at.AtElement(n.field, schema.AsMap(elements[i])))
		if !different {
			continue
		}
		if !owned {
			elements, owned = slices.Clone(elements), true
		}
		changed = true
		if elements[i] = v; v == nil {
			gone = append(gone, i)
		}
	}
	slices.Sort(gone)
	for _, i := range slices.Backward(gone) {
		elements = slices.Delete(elements, i, i+1)
	}
	for _, kid := range sortNewElements(n.children) {
		if _, there := where[kid.step]; !there && r.isCreatedNow(kid) {
			elements = append(slices.Clip(elements), r.newElement(kid, at))
			changed = true
		}
	}
	if !changed {
		return have, false
	}
	if len(elements) == 0 {
		return nil, true
	}
	return elements, true
}

// isCreatedNow tells whether the element is to be made in this phase.
func (r *applier) isCreatedNow(kid *node) bool {
	switch r.phase {
	case overridePhase:
		return len(kid.overridePresence.policies) > 0
	case defaultPhase:
		return len(kid.defaultPresence.policies) > 0 && len(kid.overridePresence.policies) == 0 && !kid.isRemoved() && !kid.suppressed
	}
	return false
}

// newElement is a new element, with all that policies want in it.
func (r *applier) newElement(kid *node, at defaulted.Location) any {
	by := kid.defaultPresence.policies
	if r.phase == overridePhase {
		by = kid.overridePresence.policies
	}
	r.newElementDepth++
	defer func() { r.newElementDepth-- }()
	if kid.typ.IsLeaf() {
		v, _ := r.applyLeaf(kid, nil, at)
		return v
	}
	r.recordChange(kid, by, kid.path())
	var v any = cloneMap(kid.keys)
	phase := r.phase
	// What a default adds, an override may be about.
	for r.phase = overridePhase; r.phase <= phase; r.phase <<= 1 {
		v, _ = r.applyNode(kid, v, at.AtElement(kid.field, schema.AsMap(v)))
	}
	r.phase = phase
	return v
}

// reportMissing is about an element that policies write to and that is not there. Where
// one names it, it was there when the plan was made: a removal took it out.
func (r *applier) reportMissing(kid *node) {
	if kid.namedBy == nil || r.isCreatedNow(kid) {
		return
	}
	path := kid.path()
	by := r.removedBy[path]
	if by == nil {
		by = r.removedBy[kid.parent.path()]
	}
	if by != nil {
		r.addConflict(path, DesiredValue{Policies: by}, DesiredValue{Policies: kid.namedBy, Nested: true})
	}
}

// addAddition reads an element for an atomic list. Which lists its path leads to is
// known once all containers are.
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

// resolveSteps returns the nodes that the steps lead to from the given ones. What is
// replaced whole they cannot lead into: only its policy can say what is in it.
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

// matchingElements are the elements that a step stands for, by their keys.
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

// appendMissing is the list with what is appended to it, and whose elements were not
// there yet.
func appendMissing(c comparer, n *node, list []any, at defaulted.Location) (longer []any, added []string) {
	slices.SortFunc(n.appends, func(a, b appendedElement) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.position, b.position), cmp.Compare(canonicalJSON(a.value), canonicalJSON(b.value)))
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

// applyAppends does what is to be appended to a list, or required of nodes.
func (r *applier) applyAppends(n *node, have any, at defaulted.Location) (any, bool) {
	if len(n.requirements) > 0 {
		made, added := withRequirements(have, n.requirements)
		if len(added) == 0 {
			return have, false
		}
		slices.Sort(added)
		r.recordChange(nil, slices.Compact(added), n.path())
		return made, true
	}
	if _, ok := have.([]any); !ok && have != nil {
		r.addInvalidObject(n.path(), "must be a list, not "+describeKind(have))
		return have, false
	}
	longer, added := appendMissing(r.compare, n, schema.AsList(have), at)
	if len(added) == 0 {
		return have, false
	}
	r.recordChange(nil, added, n.path())
	return longer, true
}
