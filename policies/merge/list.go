// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"

	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/value"
)

// list visits the elements of an associative list. The author's order is kept, new
// elements follow.
func (r *run) list(n *node, have any, at filled.Place) (any, bool) {
	given, ok := have.([]any)
	if !ok && have != nil {
		r.shape(n.path(), "is a list, not "+kindOf(have))
		return have, false
	}
	elements, where := positions(n.typ, given)
	changed, owned := len(elements) != len(given), len(elements) != len(given)
	var gone []int
	for _, kid := range n.kids {
		i, ok := where[kid.step]
		if !ok {
			r.missed(kid)
			continue
		}
		v, different := r.visit(kid, elements[i], at.In(n.field, value.Map(elements[i])))
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
	for _, kid := range inOrder(n.kids) {
		if _, there := where[kid.step]; !there && r.adds(kid) {
			elements = append(slices.Clip(elements), r.made(kid, at))
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

// adds tells whether the element is to be made in this phase.
func (r *run) adds(kid *node) bool {
	switch r.phase {
	case overriding:
		return len(kid.overBe.policies) > 0
	case filling:
		return len(kid.underBe.policies) > 0 && len(kid.overBe.policies) == 0 && !kid.gone() && !kid.shed
	}
	return false
}

// made is a new element, with all that policies want in it.
func (r *run) made(kid *node, at filled.Place) any {
	by := kid.underBe.policies
	if r.phase == overriding {
		by = kid.overBe.policies
	}
	r.making++
	defer func() { r.making-- }()
	if kid.typ.Leaf() {
		v, _ := r.leaf(kid, nil, at)
		return v
	}
	r.note(kid, by, kid.path())
	var v any = clone(kid.keys)
	phase := r.phase
	// What a default adds, an override may be about.
	for r.phase = overriding; r.phase <= phase; r.phase <<= 1 {
		v, _ = r.visit(kid, v, at.In(kid.field, value.Map(v)))
	}
	r.phase = phase
	return v
}

// missed is about an element that policies write to and that is not there. Where
// one names it, it was there when the plan was made: a removal took it out.
func (r *run) missed(kid *node) {
	if kid.named == nil || r.adds(kid) {
		return
	}
	path := kid.path()
	by := r.taken[path]
	if by == nil {
		by = r.taken[kid.parent.path()]
	}
	if by != nil {
		r.conflict(path, Want{Policies: by}, Want{Policies: kid.named, Within: true})
	}
}
