// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"strconv"
	"strings"

	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// keySeparator joins an element's keys; no key has it.
const keySeparator = "\x00"

// keyOf is what tells an element apart in its list: the values of all the list's
// keys. An element that lacks one is like no other.
func keyOf(list *podschema.Type, element any) (string, bool) {
	switch len(list.Keys) {
	case 0: // a set
		s, ok := element.(string)
		return s, ok && s != ""
	case 1:
		return keyPart(list, list.Keys[0], element)
	}
	var parts []string
	for _, key := range list.Keys {
		part, ok := keyPart(list, key, element)
		if !ok {
			return "", false
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, keySeparator), true
}

func keyPart(list *podschema.Type, key string, element any) (string, bool) {
	v := value.Map(element)[key]
	if v == nil {
		v = podschema.KeyDefault(key)
	}
	if list.Elem.Field(key).Type.Kind == podschema.Number {
		i, ok := value.Whole(v)
		return strconv.FormatInt(i, 10), ok
	}
	s, ok := v.(string)
	return s, ok && s != ""
}

// list reads what is wanted of an associative list's elements.
func (b *builder) list(n *node, v any, m mode) {
	elements, ok := v.([]any)
	if !ok {
		if object, ok := v.(map[string]any); ok && filled.ContainerList(n.field) {
			b.containers(n, object, m)
			return
		}
		b.intent(b.policy, n.path(), "is a list, not %s", kindOf(v))
		return
	}
	seen := map[string]bool{}
	for i, element := range elements {
		key, ok := keyOf(n.typ, element)
		switch {
		case !ok:
			b.intent(b.policy, n.path(), "element %d does not say its %s", i, keyNames(n.typ))
		case seen[key]:
			b.intent(b.policy, n.path()+segment(key, isElement), "is there twice")
		default:
			seen[key] = true
			b.element(n, key, i, element, m)
		}
	}
}

func keyNames(list *podschema.Type) string {
	if len(list.Keys) == 0 {
		return "text"
	}
	return strings.Join(list.Keys, " and ")
}

// element reads one, which is made if it is not there.
func (b *builder) element(list *node, key string, position int, v any, m mode) {
	n := b.child(list, key, isElement, list.field, list.typ.Elem)
	n.mark(m.phase())
	if m == asDefault {
		n.underBe.add(b.policy, position)
	} else {
		n.overBe.add(b.policy, position)
	}
	if n.keys == nil {
		n.keys = keysOf(list.typ, v)
	}
	if n.leaf() {
		b.put(n, v, m)
		return
	}
	b.fields(n, value.Map(v), m)
}

// keysOf are an element's key fields, all of them said.
func keysOf(list *podschema.Type, element any) map[string]any {
	keys := map[string]any{}
	for _, key := range list.Keys {
		v := value.Map(element)[key]
		if v == nil {
			v = podschema.KeyDefault(key)
		}
		if i, ok := value.Whole(v); ok {
			v = i
		}
		keys[key] = v
	}
	return keys
}

// positions finds the elements by key. Of those that occur twice the last one is
// kept, at the place of the first: of two env variables of one name a container
// gets the last too, and a policy must not be read from one and broken by the
// other; and the main container stays the first. Elements without a key stay as
// they are.
func positions(list *podschema.Type, elements []any) (unique []any, at map[string]int) {
	at = make(map[string]int, len(elements))
	twice := false
	for i, element := range elements {
		if key, ok := keyOf(list, element); ok {
			if _, before := at[key]; before {
				twice = true
				continue
			}
			at[key] = i
		}
	}
	if !twice {
		return elements, at
	}
	clear(at)
	for _, element := range elements {
		key, ok := keyOf(list, element)
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
