// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"

	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/value"
)

// goes decides about one match of a removal, and records it. Where a policy wrote
// what is to go there is a conflict, unless it was only a default: that goes.
func (t *taker) goes(s spot, v any) bool {
	var writers []string
	if t.stage >= afterOverrides {
		writers = s.overriders()
	}
	if t.stage >= afterAppends && len(writers) == 0 {
		writers = s.appenders(t.compare, v)
	}
	if len(writers) > 0 {
		t.conflict(t.path(), Want{Policies: t.policies}, Want{Policies: writers, Value: v})
		return false
	}
	if t.silent = t.stage >= afterDefaults && t.shed(s); t.silent {
		return true
	}
	path := t.path()
	if t.taken == nil {
		t.taken = map[string][]string{}
	}
	t.taken[path] = t.policies
	t.note(nil, t.policies, path)
	t.warnings = append(t.warnings, Warning{t.policies, path, v, nil})
	return true
}

// overriders are the policies whose overrides wrote what is at the spot.
func (s spot) overriders() []string {
	switch {
	case s.node != nil:
		return s.node.wanting()
	case s.whole != nil:
		return s.whole.wanting()
	}
	return nil
}

// shed keeps the defaults that wrote what is at the spot from being filled in
// again, and tells whether there are any.
func (r *run) shed(s spot) bool {
	found := false
	switch {
	case s.node != nil:
		s.node.visit(func(n *node) {
			if n.has&filling != 0 {
				n.shed, n.undone, found = true, true, true
			}
		})
	case s.whole != nil && len(s.whole.under) > 0:
		s.whole.shed, found = true, true
		r.parted = append(r.parted, s.whole)
	}
	return found
}

// settle finds the defaults of which parts were taken out, and then nothing was
// left to differ.
func (r *run) settle(original map[string]any) {
	for _, n := range r.parted {
		was, is := found(original, n), found(r.object, n)
		n.undone = value.Equal(was, is) || filled.Absent(n.field, was) && filled.Absent(n.field, is)
	}
}

// appenders are the policies that appended what is at the spot, or require it of
// nodes.
func (s spot) appenders(c comparison, v any) []string {
	if s.node != nil {
		return s.node.writers()
	}
	if s.whole == nil {
		return nil
	}
	var exactly []string
	for _, a := range s.whole.append {
		if c.types(s.whole.typ.Elem, a.value, v, nowhere) {
			exactly = append(exactly, a.policy)
		}
	}
	if len(exactly) > 0 {
		slices.Sort(exactly)
		return slices.Compact(exactly)
	}
	return s.whole.writers()
}
