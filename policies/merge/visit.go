// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// visit does what the plan wants of a part in the present phase. It returns the
// part as it shall be, nil if it shall go, and whether that is a change; what it
// was given stays as it is.
func (r *run) visit(n *node, have any, at filled.Place) (any, bool) {
	switch {
	case n.has&r.phase == 0:
		return have, false
	case n.leaf():
		return r.leaf(n, have, at)
	case n.gone():
		return r.remove(n, have, at)
	case n.typ.Kind == podschema.List:
		return r.list(n, have, at)
	}
	object, ok := have.(map[string]any)
	if !ok && have != nil {
		r.shape(n.path(), "is "+n.typ.Kind.String()+", not "+kindOf(have))
		return have, false
	}
	return r.parts(n, object, at)
}

// parts visits the fields of a struct or the entries of a dict.
func (r *run) parts(n *node, before map[string]any, at filled.Place) (any, bool) {
	if n.typ.Kind == podschema.Struct {
		at = at.At(before)
	}
	after, changed := before, false
	for _, kid := range n.kids {
		if kid.has&r.phase == 0 {
			continue
		}
		if kid.form == isUnion {
			after = r.choice(kid, before, after, at)
			changed = changed || !value.Same(before, after)
			continue
		}
		v, different := r.visit(kid, before[kid.step], at)
		if !different {
			continue
		}
		if !changed {
			after, changed = clone(before), true
		}
		if v == nil {
			delete(after, kid.step)
		} else {
			after[kid.step] = v
		}
	}
	if changed {
		r.coupled(n, before, after)
	}
	return after, changed
}

// coupled moves what goes together with what the policies changed.
func (r *run) coupled(n *node, before, after map[string]any) {
	for _, m := range couple(n.typ, before, after, n) {
		cause := n.kid(m.cause, isField)
		if entry := cause.kid(m.entry, isEntry); entry != nil {
			cause = entry
		}
		r.note(cause, cause.policies(r.phase), n.path()+m.path)
	}
}

// policies are who wants something of n itself in the phase.
func (n *node) policies(p phase) []string {
	switch {
	case p == overriding && len(n.over) > 0:
		return n.over[0].policies
	case p == filling && len(n.under) > 0:
		return n.under[0].policies
	}
	return nil
}

// remove does an override with null. What the API server would fill in again is as
// good as removed.
func (r *run) remove(n *node, have any, at filled.Place) (any, bool) {
	if r.phase != overriding {
		return have, false
	}
	authored := have != nil && r.authored(n, at, have)
	if n.judge(!authored); !authored {
		return have, false
	}
	r.changed(n, n.over[0], n.path(), have, nil)
	return nil, true
}

// leaf writes a value as a whole.
func (r *run) leaf(n *node, have any, at filled.Place) (any, bool) {
	if r.phase == appending {
		return r.extend(n, have, at)
	}
	open := r.open(n, at, have)
	n.judge(open)
	w, ok := r.due(n, open)
	if !ok {
		return have, false
	}
	wanted := w.value
	if wanted == nil && open {
		return have, false
	}
	if standardTolerations(n.field) {
		wanted = keepStandard(wanted, have)
	}
	if r.holds(n, have, wanted, at) {
		return have, false
	}
	r.changed(n, w, n.path(), have, wanted)
	return wanted, true
}

// due returns what the present phase wants of a leaf, and false if nothing.
func (r *run) due(n *node, open bool) (want, bool) {
	switch {
	case r.phase == overriding && len(n.over) > 0:
		return n.over[0], !n.over[0].implied
	case r.phase == filling && len(n.over) == 0 && len(n.under) > 0:
		return n.under[0], open && !n.shed && !n.under[0].implied
	}
	return want{}, false
}

// holds tells whether a leaf is as wanted. What is absent is not: what the API
// server would fill in may be another value once all is written.
func (r *run) holds(n *node, have, wanted any, at filled.Place) bool {
	switch {
	case n.form != isField:
		return have != nil && wanted != nil && r.compare.types(n.typ, have, wanted, at)
	case filled.Absent(n.field, have):
		return filled.Absent(n.field, wanted)
	}
	return r.compare.fields(n.field, n.step, at.Parent, at.Parent, have, wanted, at)
}
