// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"sluice.dev/policies/merge/schema"
)

// nodeKind is the relation of a node to its parent.
type nodeKind uint8

const (
	fieldNode   nodeKind = iota // of a struct
	entryNode                   // of a map
	elementNode                 // of an associative list
	unionNode                   // all union fields of a struct together
)

// phase is a step in which the plan is applied. A node knows the phases for which it or a
// node below has values.
type phase uint8

const (
	overridePhase phase = 1 << iota
	defaultPhase
	appendPhase
)

// node is one part of the object with the values that policies set.
type node struct {
	parent *node
	// field is the field itself, or the field whose map or list contains the node.
	field *schema.Field
	typ   *schema.Type
	kind  nodeKind
	// step is the field's name, or the entry's or element's key.
	step   string
	phases phase

	children []*node
	index    map[string]*node // of children, if there are many

	overrides, defaults []leafValue
	appends             []appendedElement
	requirements        []requirement // of the required node affinity
	// For elements: the key fields, and the policies that require the element to exist.
	keys                              map[string]any
	overridePresence, defaultPresence presence
	// namedBy are the policies that select the element by name, so it must exist.
	namedBy []string
	// open: the author left the part open; valid if openKnown is set.
	openKnown, open bool
	// suppressed: a removal deleted the default, which must not be set again. reverted:
	// nothing of the default is left.
	suppressed, reverted bool
}

// minIndexedChildren is the number of children above which a node has an index.
const minIndexedChildren = 12

// child returns the child with that step; nil if the plan has none.
func (n *node) child(step string, kind nodeKind) *node {
	if n.index != nil {
		return n.index[childIndexKey(step, kind)]
	}
	for _, child := range n.children {
		if child.step == step && child.kind == kind {
			return child
		}
	}
	return nil
}

// childIndexKey distinguishes a union from a field.
func childIndexKey(step string, kind nodeKind) string {
	if kind == unionNode {
		return "\x00"
	}
	return step
}

func (n *node) addChild(child *node) {
	n.children = append(n.children, child)
	switch {
	case n.index != nil:
		n.index[childIndexKey(child.step, child.kind)] = child
	case len(n.children) > minIndexedChildren:
		n.index = map[string]*node{}
		for _, child := range n.children {
			n.index[childIndexKey(child.step, child.kind)] = child
		}
	}
}

// markPhase records that the node has values for a phase.
func (n *node) markPhase(p phase) {
	for ; n != nil && n.phases&p == 0; n = n.parent {
		n.phases |= p
	}
}

// isLeaf reports whether the node is written as one value.
func (n *node) isLeaf() bool { return n.kind == unionNode || n.typ.IsLeaf() }

// removers returns the policies whose overrides remove this part.
func (n *node) removers() []string {
	for i := range n.overrides {
		if n.overrides[i].value == nil {
			return n.overrides[i].policies
		}
	}
	return nil
}

// isRemoved reports whether an override removes this part.
func (n *node) isRemoved() bool { return n.removers() != nil }

// path returns the path for messages: spec.containers[main].ports[80/TCP].
func (n *node) path() string {
	var nodes []*node
	for ; n.parent != nil; n = n.parent {
		nodes = append(nodes, n)
	}
	var b strings.Builder
	for _, n := range slices.Backward(nodes) {
		b.WriteString(formatStep(n.step, n.kind))
	}
	return strings.TrimPrefix(b.String(), ".")
}

// formatStep formats one step of a path.
func formatStep(step string, kind nodeKind) string {
	switch kind {
	case fieldNode:
		return "." + step
	case unionNode:
		return ""
	}
	return "[" + strings.ReplaceAll(step, keySeparator, "/") + "]"
}

// overriders returns the policies whose overrides write this part or a part of it.
func (n *node) overriders() []string {
	if n.phases&overridePhase == 0 {
		return nil
	}
	policies := slices.Clone(n.overridePresence.policies)
	for _, w := range n.overrides {
		if w.value != nil {
			policies = append(policies, w.policies...)
		}
	}
	for _, child := range n.children {
		policies = append(policies, child.overriders()...)
	}
	slices.Sort(policies)
	return slices.Compact(policies)
}

// leafValue is a value of a leaf with the policies that set it.
type leafValue struct {
	value    any // nil: remove it
	policies []string
	// implied: the value follows from that of another part. It conflicts like any other,
	// and is written together with that part.
	implied bool
}

// presence holds the policies that require an element, and its position among new ones.
type presence struct {
	policies []string
	policy   string // the first by name
	position int    // in its list
}

func (p *presence) add(policy string, position int) {
	if len(p.policies) == 0 || cmp.Or(cmp.Compare(policy, p.policy), cmp.Compare(position, p.position)) < 0 {
		p.policy, p.position = policy, position
	}
	p.policies = addPolicy(p.policies, policy)
}

// appendedElement is an element for an atomic list.
type appendedElement struct {
	policy   string
	position int
	value    any
}

// addLeafValue adds a value to a node. Equal values are combined.
func (b *planBuilder) addLeafValue(n *node, m mode, v any, implied bool) {
	values := &n.overrides
	if m == modeDefault {
		values = &n.defaults
	}
	n.markPhase(m.phase())
	for i := range *values {
		if w := &(*values)[i]; b.combineValues(n, w, v) {
			w.policies = addPolicy(w.policies, b.policy)
			w.implied = w.implied && implied
			return
		}
	}
	*values = append(*values, leafValue{v, []string{b.policy}, implied})
}

// combineValues reports whether v equals the value of w. If so, it chooses one form for
// both, independent of the order.
func (b *planBuilder) combineValues(n *node, w *leafValue, v any) bool {
	if n.kind == unionNode && w.value != nil && v != nil {
		both, ok := combineUnions(b, n, schema.AsMap(w.value), schema.AsMap(v))
		if ok {
			w.value = both
		}
		return ok
	}
	if !b.equalValues(n, w.value, v) {
		return false
	}
	if !schema.Equal(w.value, v) && canonicalJSON(v) < canonicalJSON(w.value) {
		w.value = v
	}
	return true
}

// equalValues compares as Kubernetes does: quantities by amount, and an absent field like
// its default.
func (b *planBuilder) equalValues(n *node, v, w any) bool {
	if v == nil || w == nil {
		return v == nil && w == nil
	}
	return comparer{}.equal(n.typ, v, w, noLocation)
}

// canonicalJSON returns a value's JSON, for sorting.
func canonicalJSON(v any) string {
	written, err := json.Marshal(v)
	if err != nil { // not JSON: the builder rejects such values
		return ""
	}
	return string(written)
}

// addPolicy adds a name to a sorted list.
func addPolicy(policies []string, policy string) []string {
	at, found := slices.BinarySearch(policies, policy)
	if found {
		return policies
	}
	return slices.Insert(policies, at, policy)
}
