// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"
	"strings"

	"sluice.dev/policies/merge/value"
)

// Selectors of containers: all of a list, and the first, which is the main one.
const (
	every = "*"
	first = "0"
)

// containers reads {"*": {...}}, {"0": {...}} or {"<name>": {...}}, once it is
// known which containers there are: the object's and those that policies add.
func (b *builder) containers(n *node, byName map[string]any, m mode) {
	for name, v := range byName {
		if v == nil {
			b.intent(b.policy, n.path()+segment(name, isElement), "is null: use remove to take out a container")
			continue
		}
		policy := b.policy
		b.later = append(b.later, func() {
			b.policy = policy
			for _, container := range b.selected(n, name) {
				b.put(container, v, m)
			}
		})
	}
}

// selected returns the nodes of the containers that a name stands for. Where it
// stands for none, that is noted as the policy's fault; all of none is none.
func (b *builder) selected(n *node, name string) []*node {
	names := b.present(n)
	switch {
	case name == every:
	case name == first && len(names) > 0:
		return b.selectedKey(n, names[0])
	default:
		return b.selectedKey(n, name)
	}
	nodes := make([]*node, 0, len(names))
	for _, name := range names {
		nodes = append(nodes, b.child(n, name, isElement, n.field, n.typ.Elem))
	}
	return nodes
}

// selectedKey returns the element of that key, if there is or will be one.
func (b *builder) selectedKey(n *node, key string) []*node {
	names := b.present(n)
	if !slices.Contains(names, key) {
		b.intent(b.policy, n.path(), "%s", missing(key, names))
		return nil
	}
	selected := b.child(n, key, isElement, n.field, n.typ.Elem)
	selected.named = with(selected.named, b.policy)
	return []*node{selected}
}

func missing(name string, names []string) string {
	var shown []string
	for _, name := range names {
		shown = append(shown, strings.ReplaceAll(name, keySeparator, "/"))
	}
	if len(shown) == 0 {
		return "has no " + name + ": it is empty"
	}
	return "has no " + strings.ReplaceAll(name, keySeparator, "/") + ", only " + strings.Join(shown, ", ")
}

// present are the keys of a list's elements in the order that they will have: the
// object's, then those that policies add.
func (b *builder) present(n *node) []string {
	var names []string
	known := map[string]bool{}
	for _, element := range value.List(found(b.object, n)) {
		if key, ok := keyOf(n.typ, element); ok && !known[key] {
			known[key] = true
			names = append(names, key)
		}
	}
	for _, added := range inOrder(n.kids) {
		if !known[added.step] {
			names = append(names, added.step)
		}
	}
	return names
}

// found is what an object has at a node; of a union its members.
func found(object map[string]any, n *node) any {
	if n.parent == nil {
		return object
	}
	in := found(object, n.parent)
	switch n.form {
	case isUnion:
		return members(n.typ, value.Map(in))
	case isElement:
		elements, at := positions(n.parent.typ, value.List(in))
		if i, ok := at[n.step]; ok {
			return elements[i]
		}
		return nil
	}
	return value.Map(in)[n.step]
}

// inOrder are the elements that policies want to be there, in the order in which
// they are added: first those of overrides; by policy, and in that policy's order.
func inOrder(kids []*node) []*node {
	var wanted []*node
	for _, kid := range kids {
		if kid.order() != nil {
			wanted = append(wanted, kid)
		}
	}
	slices.SortFunc(wanted, func(a, b *node) int {
		p, q := a.order(), b.order()
		if over := len(a.overBe.policies) > 0; over != (len(b.overBe.policies) > 0) {
			return map[bool]int{true: -1, false: 1}[over]
		}
		return cmp.Or(cmp.Compare(p.policy, q.policy), cmp.Compare(p.position, q.position), cmp.Compare(a.step, b.step))
	})
	return wanted
}

// order is whose word decides where a new element stands: an override's, else a
// default's; nil if nobody wants it to be there.
func (n *node) order() *presence {
	switch {
	case len(n.overBe.policies) > 0:
		return &n.overBe
	case len(n.underBe.policies) > 0:
		return &n.underBe
	}
	return nil
}
