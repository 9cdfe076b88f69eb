// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import "slices"

// collide finds the conflicts within the plan: different values at one path, and a
// removal where something is written. removed are who want to remove a part that
// n is in.
func (b *builder) collide(n *node, removed []string) {
	if len(n.over) > 1 {
		b.differ(n, n.over)
	}
	if len(n.under) > 1 && len(n.over) == 0 && removed == nil { // else the override wins
		b.differ(n, n.under)
	}
	if removed == nil && n.gone() {
		removed = n.removers()
		if writers := n.writersWithin(); len(writers) > 0 {
			b.conflict(n.path(), Want{Policies: removed}, Want{Policies: writers, Within: true})
		}
	}
	for _, kid := range n.kids {
		b.collide(kid, removed)
	}
}

// differ notes a conflict of a leaf.
func (b *builder) differ(n *node, wants []want) {
	var all []Want
	for _, w := range wants {
		all = append(all, Want{Policies: w.policies, Value: w.value})
	}
	b.conflict(n.path(), all...)
}

// writers are who write n, or parts of it.
func (n *node) writers() []string {
	writers := n.writersWithin()
	for _, w := range n.over {
		if w.value != nil {
			writers = append(writers, w.policies...)
		}
	}
	slices.Sort(writers)
	return slices.Compact(writers)
}

// writersWithin are who write parts of n, or add to it.
func (n *node) writersWithin() []string {
	writers := slices.Clone(n.overBe.policies)
	for _, a := range n.append {
		writers = append(writers, a.policy)
	}
	for _, r := range n.require {
		writers = append(writers, r.policies...)
	}
	for _, kid := range n.kids {
		writers = append(writers, kid.writers()...)
	}
	slices.Sort(writers)
	return slices.Compact(writers)
}

// visit calls f for a node and all below.
func (n *node) visit(f func(*node)) {
	f(n)
	for _, kid := range n.kids {
		kid.visit(f)
	}
}

// compose makes an override of a whole list say what becomes of it once elements
// are appended and requirements are added, so that it is done with when it is.
func compose(n *node) {
	if len(n.over) == 1 && n.over[0].value != nil {
		w := &n.over[0]
		if len(n.append) > 0 {
			list, _ := w.value.([]any)
			w.value, _ = lengthened(comparison{}, n, list, nowhere)
		}
		if len(n.require) > 0 {
			w.value, _ = withRequirements(w.value, n.require)
		}
	}
	for _, kid := range n.kids {
		compose(kid)
	}
}
