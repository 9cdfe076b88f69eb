// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"
	"strings"

	"sluice.dev/policies/merge/podschema"
)

// form is how a node belongs to its parent.
type form uint8

const (
	isField   form = iota // of a struct
	isEntry               // of a dict
	isElement             // of an associative list
	isUnion               // all union fields of a struct together
)

// phase is a time at which the plan is applied. A node knows for which phases
// there is something in it or below.
type phase uint8

const (
	overriding phase = 1 << iota
	filling
	appending
)

// node is one part of the object and what is wanted of it.
type node struct {
	parent *node
	// field is the field that it is, or of whose dict or list it is a part.
	field *podschema.Field
	typ   *podschema.Type
	form  form
	// step is the field's name, or the entry's or element's key.
	step string
	has  phase

	kids  []*node
	index map[string]*node // of kids, once they are many

	over, under []want // by overrides and by defaults
	append      []appended
	require     []requirement // of the required node affinity
	// Elements: what identifies it, and who wants it to be there.
	keys            map[string]any
	overBe, underBe presence
	// named is who speaks of an element by name, so that it must be there.
	named []string
	// judged tells that it is known whether the author had left it open.
	judged, left bool
	// shed defaults were taken out by a removal, and are not filled in again; of
	// undone ones nothing is left.
	shed, undone bool
}

// many children are found by an index.
const many = 12

// kid returns the child of that step, and nil if the plan has none.
func (n *node) kid(step string, form form) *node {
	if n.index != nil {
		return n.index[indexed(step, form)]
	}
	for _, kid := range n.kids {
		if kid.step == step && kid.form == form {
			return kid
		}
	}
	return nil
}

// indexed keeps a union apart from a field.
func indexed(step string, form form) string {
	if form == isUnion {
		return "\x00"
	}
	return step
}

func (n *node) adopt(kid *node) {
	n.kids = append(n.kids, kid)
	switch {
	case n.index != nil:
		n.index[indexed(kid.step, kid.form)] = kid
	case len(n.kids) > many:
		n.index = map[string]*node{}
		for _, kid := range n.kids {
			n.index[indexed(kid.step, kid.form)] = kid
		}
	}
}

// mark notes that there is something for the phase.
func (n *node) mark(p phase) {
	for ; n != nil && n.has&p == 0; n = n.parent {
		n.has |= p
	}
}

// leaf nodes are written as one value.
func (n *node) leaf() bool { return n.form == isUnion || n.typ.Leaf() }

// removers are the policies whose overrides remove this part.
func (n *node) removers() []string {
	for i := range n.over {
		if n.over[i].value == nil {
			return n.over[i].policies
		}
	}
	return nil
}

// gone tells whether an override removes this part.
func (n *node) gone() bool { return n.removers() != nil }

// path is how messages call the part: spec.containers[main].ports[80/TCP].
func (n *node) path() string {
	var nodes []*node
	for ; n.parent != nil; n = n.parent {
		nodes = append(nodes, n)
	}
	var b strings.Builder
	for _, n := range slices.Backward(nodes) {
		b.WriteString(segment(n.step, n.form))
	}
	return strings.TrimPrefix(b.String(), ".")
}

// segment is a step within a path.
func segment(step string, form form) string {
	switch form {
	case isField:
		return "." + step
	case isUnion:
		return ""
	}
	return "[" + strings.ReplaceAll(step, keySeparator, "/") + "]"
}

// wanting are the policies whose overrides write this part or one below.
func (n *node) wanting() []string {
	if n.has&overriding == 0 {
		return nil
	}
	policies := slices.Clone(n.overBe.policies)
	for _, w := range n.over {
		if w.value != nil {
			policies = append(policies, w.policies...)
		}
	}
	for _, kid := range n.kids {
		policies = append(policies, kid.wanting()...)
	}
	slices.Sort(policies)
	return slices.Compact(policies)
}
