// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/policies/merge/schema"
)

// keySeparator joins an element's keys; no key contains it.
const keySeparator = "\x00"

// elementKey identifies an element in its list: the values of all the list's keys. It
// returns false for an element that lacks one.
func elementKey(list *schema.Type, element any) (string, bool) {
	switch len(list.Keys) {
	case 0: // a set
		s, ok := element.(string)
		return s, ok && s != ""
	case 1:
		return elementKeyField(list, list.Keys[0], element)
	}
	var parts []string
	for _, key := range list.Keys {
		part, ok := elementKeyField(list, key, element)
		if !ok {
			return "", false
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, keySeparator), true
}

func elementKeyField(list *schema.Type, key string, element any) (string, bool) {
	v := schema.AsMap(element)[key]
	if v == nil {
		v = schema.KeyDefault(key)
	}
	if list.Elem.Field(key).Type.Kind == schema.KindNumber {
		i, ok := schema.AsInt64(v)
		return strconv.FormatInt(i, 10), ok
	}
	s, ok := v.(string)
	return s, ok && s != ""
}

// addList reads the elements of an associative list.
func (b *planBuilder) addList(n *node, v any, m mode) {
	elements, ok := v.([]any)
	if !ok {
		if object, ok := v.(map[string]any); ok && schema.IsContainerList(n.field) {
			b.addContainers(n, object, m)
			return
		}
		b.addInvalidChanges(b.policy, n.path(), "must be a list, not %s", describeKind(v))
		return
	}
	keys := map[string]bool{}
	for i, element := range elements {
		key, ok := elementKey(n.typ, element)
		switch {
		case !ok:
			b.addInvalidChanges(b.policy, n.path(), "element %d has no %s", i, keyNames(n.typ))
		case keys[key]:
			b.addInvalidChanges(b.policy, n.path()+formatStep(key, elementNode), "occurs twice")
		default:
			keys[key] = true
			b.addElement(n, key, i, element, m)
		}
	}
}

func keyNames(list *schema.Type) string {
	if len(list.Keys) == 0 {
		return "text"
	}
	return strings.Join(list.Keys, " and ")
}

// addElement reads one element, which is created if it does not exist.
func (b *planBuilder) addElement(list *node, key string, position int, v any, m mode) {
	n := b.child(list, key, elementNode, list.field, list.typ.Elem)
	n.markPhase(m.phase())
	if m == modeDefault {
		n.defaultPresence.add(b.policy, position)
	} else {
		n.overridePresence.add(b.policy, position)
	}
	if n.keys == nil {
		n.keys = elementKeyFields(list.typ, v)
	}
	if n.isLeaf() {
		b.addValue(n, v, m)
		return
	}
	b.addFields(n, schema.AsMap(v), m)
}

// elementKeyFields returns an element's key fields, with defaults.
func elementKeyFields(list *schema.Type, element any) map[string]any {
	keys := map[string]any{}
	for _, key := range list.Keys {
		v := schema.AsMap(element)[key]
		if v == nil {
			v = schema.KeyDefault(key)
		}
		if i, ok := schema.AsInt64(v); ok {
			v = i
		}
		keys[key] = v
	}
	return keys
}

// indexElements indexes the elements by key. Of duplicates it keeps the last one, at the
// place of the first. A container gets the last of two env variables with one name, so a
// policy must not read one and be bypassed by the other. The main container stays first.
// Elements without a key stay unchanged.
func indexElements(list *schema.Type, elements []any) (unique []any, at map[string]int) {
	at = make(map[string]int, len(elements))
	duplicates := false
	for i, element := range elements {
		if key, ok := elementKey(list, element); ok {
			if _, before := at[key]; before {
				duplicates = true
				continue
			}
			at[key] = i
		}
	}
	if !duplicates {
		return elements, at
	}
	clear(at)
	for _, element := range elements {
		key, ok := elementKey(list, element)
		if i, before := at[key]; ok && before {
			unique[i] = element
			continue
		}
		if ok {
			at[key] = len(unique)
		}
		unique = append(unique, element)
	}
	return unique, at
}

// Selectors of containers: all of a list, and the main one, which is the first.
const (
	allContainers  = "*"
	firstContainer = "0"
)

// addContainers reads {"*": {...}}, {"0": {...}} or {"<name>": {...}} once all containers
// are known: the object's and those that policies add.
func (b *planBuilder) addContainers(n *node, byName map[string]any, m mode) {
	for name, v := range byName {
		if v == nil {
			b.addInvalidChanges(b.policy, n.path()+formatStep(name, elementNode), "is null: use remove to remove a container")
			continue
		}
		policy := b.policy
		b.containerReads = append(b.containerReads, func() {
			b.policy = policy
			for _, container := range b.selectContainers(n, name) {
				b.addValue(container, v, m)
			}
		})
	}
}

// selectContainers returns the nodes of the containers that a name selects. No match is
// an error of the policy, except for "*".
func (b *planBuilder) selectContainers(n *node, name string) []*node {
	names := b.elementKeys(n)
	switch {
	case name == allContainers:
	case name == firstContainer && len(names) > 0:
		return b.selectElement(n, names[0])
	default:
		return b.selectElement(n, name)
	}
	nodes := make([]*node, 0, len(names))
	for _, name := range names {
		nodes = append(nodes, b.child(n, name, elementNode, n.field, n.typ.Elem))
	}
	return nodes
}

// selectElement returns the element with that key, if it exists or will be created.
func (b *planBuilder) selectElement(n *node, key string) []*node {
	names := b.elementKeys(n)
	if !slices.Contains(names, key) {
		b.addInvalidChanges(b.policy, n.path(), "%s", missingContainer(key, names))
		return nil
	}
	selected := b.child(n, key, elementNode, n.field, n.typ.Elem)
	selected.namedBy = addPolicy(selected.namedBy, b.policy)
	return []*node{selected}
}

func missingContainer(name string, names []string) string {
	var shown []string
	for _, name := range names {
		shown = append(shown, strings.ReplaceAll(name, keySeparator, "/"))
	}
	if len(shown) == 0 {
		return "has no " + name + ": it is empty"
	}
	return "has no " + strings.ReplaceAll(name, keySeparator, "/") + ", only " + strings.Join(shown, ", ")
}

// elementKeys returns the keys of a list's elements in their final order: the object's,
// then those that policies add.
func (b *planBuilder) elementKeys(n *node) []string {
	var names []string
	known := map[string]bool{}
	for _, element := range schema.AsList(valueAt(b.object, n)) {
		if key, ok := elementKey(n.typ, element); ok && !known[key] {
			known[key] = true
			names = append(names, key)
		}
	}
	for _, added := range sortNewElements(n.children) {
		if !known[added.step] {
			names = append(names, added.step)
		}
	}
	return names
}

// valueAt returns the object's value at a node; for a union, its members.
func valueAt(object map[string]any, n *node) any {
	if n.parent == nil {
		return object
	}
	in := valueAt(object, n.parent)
	switch n.kind {
	case unionNode:
		return unionMembers(n.typ, schema.AsMap(in))
	case elementNode:
		elements, at := indexElements(n.parent.typ, schema.AsList(in))
		if i, ok := at[n.step]; ok {
			return elements[i]
		}
		return nil
	}
	return schema.AsMap(in)[n.step]
}

// sortNewElements returns the elements that policies create, in the order in which they
// are added: those of overrides first, then by policy, then by the policy's order.
func sortNewElements(children []*node) []*node {
	var created []*node
	for _, child := range children {
		if child.newElementPresence() != nil {
			created = append(created, child)
		}
	}
	slices.SortFunc(created, func(a, b *node) int {
		p, q := a.newElementPresence(), b.newElementPresence()
		if overrides := len(a.overridePresence.policies) > 0; overrides != (len(b.overridePresence.policies) > 0) {
			return map[bool]int{true: -1, false: 1}[overrides]
		}
		return cmp.Or(cmp.Compare(p.policy, q.policy), cmp.Compare(p.position, q.position), cmp.Compare(a.step, b.step))
	})
	return created
}

// newElementPresence returns what decides the position of a new element: an override, or
// else a default; nil if no policy creates it.
func (n *node) newElementPresence() *presence {
	switch {
	case len(n.overridePresence.policies) > 0:
		return &n.overridePresence
	case len(n.defaultPresence.policies) > 0:
		return &n.defaultPresence
	}
	return nil
}
