// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"strings"

	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// step is one of a policy's path, read with the schema.
type step struct {
	// field or entry is its name in a struct or a dict.
	name string
	// all stands for every element or entry.
	all bool
	// match are fields that an element must have.
	match map[string]any
	// equal is a scalar that an element must be; nil if not asked for.
	equal any
	// field and typ are what it leads to, list what it chooses from.
	field *podschema.Field
	typ   *podschema.Type
	list  *podschema.Type
}

// read reads a policy's path along the schema. It returns false, and has noted the
// fault, if a pod has no such path or if no policy may touch it.
func (b *builder) read(rule string, path intent.Path) ([]step, bool) {
	fault := func(format string, args ...any) ([]step, bool) {
		b.intent(b.policy, written(rule, path), "%s", fmt.Sprintf(format, args...))
		return nil, false
	}
	if len(path) > deepest {
		return fault("has more than %d steps", deepest)
	}
	steps := make([]step, 0, len(path))
	field, t := (*podschema.Field)(nil), b.root.typ
	for i, part := range path {
		s := step{field: field}
		name, isName := part.(string)
		switch {
		case strings.HasPrefix(name, "$"):
			return fault("%s is a directive, of which there are none", name)
		case t.Kind == podschema.Struct && isName:
			if !writable(steps, t, name) {
				return fault("cannot be written by any policy")
			}
			if s.field = t.Field(name); s.field == nil {
				return fault("%s has no field %s there", called(b.root.typ), name)
			}
			s.name, s.typ = name, s.field.Type
		case t.Kind == podschema.Dict && isName:
			s.name, s.all, s.typ = name, name == every, t.Elem
		case t.Kind == podschema.List:
			if problem := s.choose(field, t, part); problem != "" {
				return fault("%s", problem)
			}
		default:
			return fault("step %d, %s, does not lead into %s", i+1, shown(part), t.Kind)
		}
		steps = append(steps, s)
		field, t = s.field, s.typ
	}
	if len(steps) < 2 {
		return fault("cannot be written as a whole")
	}
	return steps, true
}

// written is a path as its author wrote it, for messages.
func written(rule string, path intent.Path) string {
	const longest = 200
	return rule + " " + cut(canonical(path), longest)
}

// writable tells whether policies may touch the field of that name that follows
// the steps.
func writable(steps []step, t *podschema.Type, name string) bool {
	if t.Field(name) == nil {
		return len(steps) > 0 || name != "status" // else unknown, which is said
	}
	switch {
	case len(steps) == 0:
		return name == "metadata" || name == "spec"
	case len(steps) == 1 && steps[0].name == "metadata":
		return openMetadata[name]
	}
	return true
}

// choose reads which elements of a list a step stands for.
func (s *step) choose(field *podschema.Field, list *podschema.Type, part any) (problem string) {
	s.list, s.typ = list, list.Elem
	switch part := part.(type) {
	case string:
		switch {
		case part == every:
			s.all = true
		case filled.ContainerList(field):
			s.name = part
		case list.Elem.Kind == podschema.Struct:
			return fmt.Sprintf(`elements are chosen by "*" or by fields, as in {%q: "X"}, not by %s`, anyKey(list), shown(part))
		default:
			s.equal = part
		}
		return ""
	case map[string]any:
		if list.Elem.Kind != podschema.Struct || len(part) == 0 {
			return shown(part) + " chooses no element"
		}
		for _, name := range sortedKeys(part) {
			f := list.Elem.Field(name)
			if f == nil {
				return "elements have no field " + name
			}
			if where, problem := misfit(f.Type, part[name]); problem != "" {
				return name + where + " " + problem
			}
		}
		s.match = part
		return ""
	}
	if list.Elem.Kind == podschema.Number {
		if _, ok := value.Whole(part); ok {
			s.equal = part
			return ""
		}
	}
	return "elements are chosen by \"*\" or by fields, not by " + kindOf(part)
}

func anyKey(list *podschema.Type) string {
	if len(list.Keys) > 0 {
		return list.Keys[0]
	}
	return "key"
}

// chooses tells whether the step stands for this element, which is at index i.
func (s *step) chooses(c comparison, i int, element any, at filled.Place) bool {
	switch {
	case s.all:
		return true
	case s.match != nil:
		object, ok := element.(map[string]any)
		if !ok {
			return false
		}
		for name, v := range s.match {
			have := object[name]
			if have == nil && s.list.IsKey(name) {
				have = podschema.KeyDefault(name)
			}
			if !c.types(s.typ.Field(name).Type, v, have, at) {
				return false
			}
		}
		return true
	case s.equal != nil:
		return c.types(s.typ, s.equal, element, at)
	}
	if s.name == first {
		return i == 0
	}
	key, ok := keyOf(s.list, element)
	return ok && key == s.name
}
