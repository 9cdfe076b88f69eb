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

// nodeKind is how a node belongs to its parent.
type nodeKind uint8

const (
	fieldNode   nodeKind = iota // of a struct
	entryNode                   // of a dict
	elementNode                 // of an associative list
	unionNode                   // all union fields of a struct together
)

// phase is a time at which the plan is applied. A node knows for which phases
// there is something in it or below.
type phase uint8

const (
	overridePhase phase = 1 << iota
	defaultPhase
	appendPhase
)

// node is one part of the object and what is wanted of it.
type node struct {
	parent *node
	// field is the field that it is, or of whose dict or list it is a part.
	field *schema.Field
	typ   *schema.Type
	kind  nodeKind
	// step is the field's name, or the entry's or element's key.
	step   string
	phases phase

	children []*node
	index    map[string]*node // of kids, once they are many

	overrides, defaults []leafValue // by overrides and by defaults
	appends             []appendedElement
	requirements        []requirement // of the required node affinity
	// Elements: what identifies it, and who wants it to be there.
	keys                              map[string]any
	overridePresence, defaultPresence presence
	// namedBy is who speaks of an element by name, so that it must be there.
	namedBy []string
	// openKnown tells that it is known whether the author had left it open.
	openKnown, open bool
	// suppressed defaults were taken out by a removal, and are not filled in again; of
	// undone ones nothing is left.
	suppressed, reverted bool
}

// minIndexedChildren children are found by an index.
const minIndexedChildren = 12

// child returns the child of that step, and nil if the plan has none.
func (n *node) child(step string, form nodeKind) *node {
	if n.index != nil {
		return n.index[childIndexKey(step, form)]
	}
	for _, kid := range n.children {
		if kid.step == step && kid.kind == form {
			return kid
		}
	}
	return nil
}

// childIndexKey keeps a union apart from a field.
func childIndexKey(step string, form nodeKind) string {
	if form == unionNode {
		return "\x00"
	}
	return step
}

func (n *node) addChild(kid *node) {
	n.children = append(n.children, kid)
	switch {
	case n.index != nil:
		n.index[childIndexKey(kid.step, kid.kind)] = kid
	case len(n.children) > minIndexedChildren:
		n.index = map[string]*node{}
		for _, kid := range n.children {
			n.index[childIndexKey(kid.step, kid.kind)] = kid
		}
	}
}

// markPhase notes that there is something for the phase.
func (n *node) markPhase(p phase) {
	for ; n != nil && n.phases&p == 0; n = n.parent {
		n.phases |= p
	}
}

// isLeaf nodes are written as one value.
func (n *node) isLeaf() bool { return n.kind == unionNode || n.typ.IsLeaf() }

// removers are the policies whose overrides remove this part.
func (n *node) removers() []string {
	for i := range n.overrides {
		if n.overrides[i].value == nil {
			return n.overrides[i].policies
		}
	}
	return nil
}

// isRemoved tells whether an override removes this part.
func (n *node) isRemoved() bool { return n.removers() != nil }

// path is how messages call the part: spec.containers[main].ports[80/TCP].
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

// formatStep is a step within a path.
func formatStep(step string, form nodeKind) string {
	switch form {
	case fieldNode:
		return "." + step
	case unionNode:
		return ""
	}
	return "[" + strings.ReplaceAll(step, keySeparator, "/") + "]"
}

// overriders are the policies whose overrides write this part or one below.
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
	for _, kid := range n.children {
		policies = append(policies, kid.overriders()...)
	}
	slices.Sort(policies)
	return slices.Compact(policies)
}

// leafValue is a value of a leaf, and who wants it there.
type leafValue struct {
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
	p.policies = addPolicy(p.policies, policy)
}

// appendedElement is an element for an atomic list.
type appendedElement struct {
	policy   string
	position int
	value    any
}

// addLeafValue adds a want to a node's, where equal ones become one.
func (b *planBuilder) addLeafValue(n *node, m mode, v any, implied bool) {
	wants := &n.overrides
	if m == modeDefault {
		wants = &n.defaults
	}
	n.markPhase(m.phase())
	for i := range *wants {
		if w := &(*wants)[i]; b.combineValues(n, w, v) {
			w.policies = addPolicy(w.policies, b.policy)
			w.implied = w.implied && implied
			return
		}
	}
	*wants = append(*wants, leafValue{v, []string{b.policy}, implied})
}

// combineValues tells whether a want for v is the same as w, and if so makes w's value
// the one that stands for both, whichever came first.
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

// equalValues compares as Kubernetes would: quantities by amount, and what is left out
// as what the API server fills in.
func (b *planBuilder) equalValues(n *node, v, w any) bool {
	if v == nil || w == nil {
		return v == nil && w == nil
	}
	return comparer{}.equal(n.typ, v, w, noLocation)
}

// canonicalJSON is a value's JSON, for orders that depend on nothing else.
func canonicalJSON(v any) string {
	written, err := json.Marshal(v)
	if err != nil { // not JSON: the builder refuses such values
		return ""
	}
	return string(written)
}

// addPolicy is a sorted list with one name more.
func addPolicy(policies []string, policy string) []string {
	at, found := slices.BinarySearch(policies, policy)
	if found {
		return policies
	}
	return slices.Insert(policies, at, policy)
}
