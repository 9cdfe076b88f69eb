// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"encoding/json"
	"slices"

	"sluice.dev/policies/merge/value"
)

// want is a value of a leaf, and who wants it there.
type want struct {
	value    any // nil: it shall go
	policies []string
	// implied wants follow from one of another part. They conflict like others,
	// but what they say is done when that part changes.
	implied bool
}

// presence is who wants an element to be there, and where among new ones.
type presence struct {
	policies []string
	policy   string // the first by name
	position int    // in its list
}

func (p *presence) add(policy string, position int) {
	if len(p.policies) == 0 || cmp.Or(cmp.Compare(policy, p.policy), cmp.Compare(position, p.position)) < 0 {
		p.policy, p.position = policy, position
	}
	p.policies = with(p.policies, policy)
}

// appended is an element for an atomic list.
type appended struct {
	policy   string
	position int
	value    any
}

// wanted adds a want to a node's, where equal ones become one.
func (b *builder) wanted(n *node, m mode, v any, implied bool) {
	wants := &n.over
	if m == asDefault {
		wants = &n.under
	}
	n.mark(m.phase())
	for i := range *wants {
		if w := &(*wants)[i]; b.reconcile(n, w, v) {
			w.policies = with(w.policies, b.policy)
			w.implied = w.implied && implied
			return
		}
	}
	*wants = append(*wants, want{v, []string{b.policy}, implied})
}

// reconcile tells whether a want for v is the same as w, and if so makes w's value
// the one that stands for both, whichever came first.
func (b *builder) reconcile(n *node, w *want, v any) bool {
	if n.form == isUnion && w.value != nil && v != nil {
		both, ok := reconcileUnions(b, n, value.Map(w.value), value.Map(v))
		if ok {
			w.value = both
		}
		return ok
	}
	if !b.same(n, w.value, v) {
		return false
	}
	if !value.Equal(w.value, v) && canonical(v) < canonical(w.value) {
		w.value = v
	}
	return true
}

// same compares as Kubernetes would: quantities by amount, and what is left out
// as what the API server fills in.
func (b *builder) same(n *node, v, w any) bool {
	if v == nil || w == nil {
		return v == nil && w == nil
	}
	return comparison{}.types(n.typ, v, w, nowhere)
}

// canonical is a value's JSON, for orders that depend on nothing else.
func canonical(v any) string {
	written, err := json.Marshal(v)
	if err != nil { // not JSON: the builder refuses such values
		return ""
	}
	return string(written)
}

// with is a sorted list with one name more.
func with(policies []string, policy string) []string {
	at, found := slices.BinarySearch(policies, policy)
	if found {
		return policies
	}
	return slices.Insert(policies, at, policy)
}
