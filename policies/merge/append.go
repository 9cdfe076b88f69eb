// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"

	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// addition reads an element for an atomic list. Which lists its path leads to is
// known once all containers are.
func (b *builder) addition(position int, a intent.Addition) {
	steps, ok := b.read("append", a.Path)
	if !ok {
		return
	}
	path := written("append", a.Path)
	list := steps[len(steps)-1].typ
	switch {
	case slices.ContainsFunc(steps, func(s step) bool { return s.field != nil && s.field.ID() == "NodeSelector.nodeSelectorTerms" }):
		b.intent(b.policy, path, "terms are ORed, so that one more would allow more nodes: use nodes")
		return
	case list.Kind == podschema.List && !list.Atomic:
		b.intent(b.policy, path, "is merged by %s: use defaults or overrides", keyNames(list))
		return
	case list.Kind != podschema.List:
		b.intent(b.policy, path, "is %s, not a list", list.Kind)
		return
	}
	if where, problem := misfit(list.Elem, a.Value); problem != "" {
		b.intent(b.policy, path, "the element%s %s", where, problem)
		return
	}
	policy := b.policy
	b.last = append(b.last, func() {
		b.policy = policy
		for _, n := range b.reach(path, []*node{b.root}, steps) {
			n.append = append(n.append, appended{policy, position, a.Value})
			n.mark(appending)
		}
	})
}

// reach returns the nodes that the steps lead to from the given ones. What is
// replaced whole they cannot lead into: only its policy can say what is in it.
func (b *builder) reach(path string, from []*node, steps []step) []*node {
	for _, s := range steps {
		var to []*node
		for _, n := range from {
			switch {
			case n.typ.Leaf() || s.field != nil && s.list == nil && s.field.Union:
				b.intent(b.policy, path, "leads into a part that is replaced whole: write all of it in overrides")
				return nil
			case s.list != nil:
				to = append(to, b.elementsOf(n, s)...)
			default:
				to = append(to, b.field(n, s.field))
			}
		}
		from = to
	}
	return from
}

// elementsOf are the elements that a step stands for, by their keys.
func (b *builder) elementsOf(n *node, s step) []*node {
	switch {
	case s.all:
		return b.selected(n, every)
	case s.match == nil:
		return b.selected(n, s.name)
	}
	key, ok := keyOf(n.typ, s.match)
	if !ok || len(s.match) > len(n.typ.Keys) {
		b.intent(b.policy, n.path(), "an element is chosen by its %s here, not by %s", keyNames(n.typ), shown(s.match))
		return nil
	}
	return b.selectedKey(n, key)
}

// lengthened is the list with what is appended to it, and whose elements were not
// there yet.
func lengthened(c comparison, n *node, list []any, at filled.Place) (longer []any, added []string) {
	slices.SortFunc(n.append, func(a, b appended) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.position, b.position), cmp.Compare(canonical(a.value), canonical(b.value)))
	})
	longer = list
	for _, a := range n.append {
		switch i := c.index(n.typ, longer, a.value, at); {
		case i < 0:
			longer = append(slices.Clip(longer), a.value)
			added = with(added, a.policy)
		case i >= len(list): // another policy appended the same
			added = with(added, a.policy)
		}
	}
	return longer, added
}

// extend does what is to be appended to a list, or required of nodes.
func (r *run) extend(n *node, have any, at filled.Place) (any, bool) {
	if len(n.require) > 0 {
		made, added := withRequirements(have, n.require)
		if len(added) == 0 {
			return have, false
		}
		slices.Sort(added)
		r.note(nil, slices.Compact(added), n.path())
		return made, true
	}
	if _, ok := have.([]any); !ok && have != nil {
		r.shape(n.path(), "is a list, not "+kindOf(have))
		return have, false
	}
	longer, added := lengthened(r.compare, n, value.List(have), at)
	if len(added) == 0 {
		return have, false
	}
	r.note(nil, added, n.path())
	return longer, true
}
