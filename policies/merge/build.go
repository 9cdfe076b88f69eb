// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"

	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
)

// mode is in which of an intent's two partial objects a value stands.
type mode uint8

const (
	asDefault mode = iota
	asOverride
)

func (m mode) phase() phase {
	if m == asDefault {
		return filling
	}
	return overriding
}

// builder makes one plan of all intents.
type builder struct {
	faults
	object map[string]any
	root   *node
	made   int
	policy string // whose intent is being read
	// later is what speaks of containers by name or of all, which can be read once
	// it is known which there will be; and last what speaks of elements of any list.
	later, last []func()
	spare       []node // allocated ahead
}

// plan is what all intents want, without conflicts.
type plan struct {
	root   *node
	remove []removal
}

// build reads the intents. It returns an error if one of them is at fault, or if
// two conflict.
func build(object map[string]any, intents []intent.Intent) (*plan, error) {
	b := &builder{object: object, root: &node{typ: rootOf(object)}}
	p := &plan{root: b.root}
	var requirements []requirement
	for i := range intents {
		in := &intents[i]
		b.policy = in.Policy
		if in.Defaults != nil {
			b.fields(b.root, in.Defaults, asDefault)
		}
		if in.Overrides != nil {
			b.fields(b.root, in.Overrides, asOverride)
		}
		requirements = b.requirements(requirements, in.Nodes)
		p.remove = b.removals(p.remove, in.Remove)
		for position, addition := range in.Append {
			b.addition(position, addition)
		}
	}
	for _, read := range slices.Concat(b.later, b.last) {
		read()
	}
	if err := b.err(); err != nil {
		return nil, err
	}
	b.require(requirements)
	b.collide(b.root, nil)
	if err := b.err(); err != nil {
		return nil, err
	}
	compose(b.root)
	return p, nil
}

// child returns the node of a part, and makes it if the plan has none.
func (b *builder) child(n *node, step string, form form, field *podschema.Field, typ *podschema.Type) *node {
	if kid := n.kid(step, form); kid != nil {
		return kid
	}
	if len(b.spare) == 0 {
		b.spare = make([]node, 32)
	}
	kid := &b.spare[0]
	b.spare = b.spare[1:]
	*kid = node{parent: n, step: step, form: form, field: field, typ: typ}
	n.adopt(kid)
	b.made++
	return kid
}

func (b *builder) field(n *node, f *podschema.Field) *node {
	return b.child(n, f.Name, isField, f, f.Type)
}

// put reads what is wanted of a part.
func (b *builder) put(n *node, v any, m mode) {
	switch {
	case b.made > mostNodes:
		b.tooMany()
	case v == nil:
		b.null(n, m)
	case n.leaf():
		if b.check(n, n.typ, v) {
			b.wanted(n, m, v, false)
		}
	case n.typ.Kind == podschema.List:
		b.list(n, v, m)
	default:
		object, ok := v.(map[string]any)
		switch {
		case !ok:
			b.intent(b.policy, n.path(), "is %s, not %s", n.typ.Kind, kindOf(v))
		case n.typ.Kind == podschema.Dict:
			b.entries(n, object, m)
		default:
			b.fields(n, object, m)
		}
	}
}

func (b *builder) fields(n *node, object map[string]any, m mode) {
	var union map[string]any
	for name, v := range object {
		field, ok := b.known(n, name)
		switch {
		case !ok:
		case n.form == isElement && n.parent.typ.IsKey(name): // read with the list
		case field.Union:
			if union == nil {
				union = map[string]any{}
			}
			union[name] = v
		default:
			b.put(b.field(n, field), v, m)
		}
	}
	if union != nil {
		b.union(n, union, m)
	}
}

func (b *builder) entries(n *node, object map[string]any, m mode) {
	for key, v := range object {
		if b.dollar(n, key) {
			continue
		}
		b.put(b.child(n, key, isEntry, n.field, n.typ.Elem), v, m)
		b.imply(n, key, v, m)
	}
}

// null removes, in overrides.
func (b *builder) null(n *node, m mode) {
	switch {
	case m == asDefault:
		b.intent(b.policy, n.path(), "is null, which removes in overrides only; leave it out of defaults")
	case n.parent == b.root:
		b.intent(b.policy, n.path(), "cannot be removed")
	case filled.ContainerList(n.field) && n.form == isField:
		b.intent(b.policy, n.path(), "is null: use remove to take out containers")
	default:
		b.wanted(n, m, nil, false)
	}
}
