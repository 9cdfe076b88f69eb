// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

	"sluice.dev/policies/merge/schema"
)

// pathStep is one step of a policy's path, resolved with the schema.
type pathStep struct {
	// name is the name of a field or an entry.
	name string
	// all selects every element or entry.
	all bool
	// match are fields that an element must have.
	match map[string]any
	// equal is the scalar that an element must equal; nil if unused.
	equal any
	// field and typ are the target; list is the list from which the step selects.
	field *schema.Field
	typ   *schema.Type
	list  *schema.Type
}

// resolvePath resolves a policy's path with the schema. It returns false, and records an
// error, if a pod has no such path or if policies must not write it.
func (b *planBuilder) resolvePath(rule string, path Path) ([]pathStep, bool) {
	invalid := func(format string, args ...any) ([]pathStep, bool) {
		b.addInvalidChanges(b.policy, formatPath(rule, path), "%s", fmt.Sprintf(format, args...))
		return nil, false
	}
	if len(path) > maxDepth {
		return invalid("has more than %d steps", maxDepth)
	}
	steps := make([]pathStep, 0, len(path))
	field, t := (*schema.Field)(nil), b.root.typ
	for i, part := range path {
		s := pathStep{field: field}
		name, isName := part.(string)
		switch {
		case strings.HasPrefix(name, "$"):
			return invalid("%s is a merge directive, which policies do not support", name)
		case t.Kind == schema.KindStruct && isName:
			if !isWritable(steps, t, name) {
				return invalid("cannot be written by any policy")
			}
			if s.field = t.Field(name); s.field == nil {
				return invalid("%s has no field %s there", rootName(b.root.typ), name)
			}
			s.name, s.typ = name, s.field.Type
		case t.Kind == schema.KindMap && isName:
			s.name, s.all, s.typ = name, name == allContainers, t.Elem
		case t.Kind == schema.KindList:
			if problem := s.parseSelector(field, t, part); problem != "" {
				return invalid("%s", problem)
			}
		default:
			return invalid("step %d, %s, does not lead into %s", i+1, formatValue(part), t.Kind)
		}
		steps = append(steps, s)
		field, t = s.field, s.typ
	}
	if len(steps) < 2 {
		return invalid("cannot be written as a whole")
	}
	return steps, true
}

// formatPath returns a path as its author wrote it, for messages.
func formatPath(rule string, path Path) string {
	const longest = 200
	return rule + " " + truncate(canonicalJSON(path), longest)
}

// isWritable reports whether policies may write the field that follows the steps.
func isWritable(steps []pathStep, t *schema.Type, name string) bool {
	if t.Field(name) == nil {
		return len(steps) > 0 || name != "status" // else resolvePath reports an unknown field
	}
	switch {
	case len(steps) == 0:
		return name == "metadata" || name == "spec"
	case len(steps) == 1 && steps[0].name == "metadata":
		return writableMetadata[name]
	}
	return true
}

// parseSelector reads which elements of a list a step selects.
func (s *pathStep) parseSelector(field *schema.Field, list *schema.Type, part any) (problem string) {
	s.list, s.typ = list, list.Elem
	switch part := part.(type) {
	case string:
		switch {
		case part == allContainers:
			s.all = true
		case schema.IsContainerList(field):
			s.name = part
		case list.Elem.Kind == schema.KindStruct:
			return fmt.Sprintf(`elements are selected by "*" or by fields, as in {%q: "X"}, not by %s`, describeKeys(list), formatValue(part))
		default:
			s.equal = part
		}
		return ""
	case map[string]any:
		if list.Elem.Kind != schema.KindStruct || len(part) == 0 {
			return formatValue(part) + " selects no element"
		}
		for _, name := range sortedKeys(part) {
			f := list.Elem.Field(name)
			if f == nil {
				return "elements have no field " + name
			}
			if where, problem := typeMismatch(f.Type, part[name]); problem != "" {
				return name + where + " " + problem
			}
		}
		s.match = part
		return ""
	}
	if list.Elem.Kind == schema.KindNumber {
		if _, ok := schema.AsInt64(part); ok {
			s.equal = part
			return ""
		}
	}
	return "elements are selected by \"*\" or by fields, not by " + describeKind(part)
}

func describeKeys(list *schema.Type) string {
	if len(list.Keys) > 0 {
		return list.Keys[0]
	}
	return "key"
}

// matchesElement reports whether the step selects the element at index i.
func (s *pathStep) matchesElement(c comparer, i int, element any, at schema.Location) bool {
	switch {
	case s.all:
		return true
	case s.match != nil:
		object, ok := element.(map[string]any)
		if !ok {
			return false
		}
		for name, v := range s.match {
			current := object[name]
			if current == nil && s.list.IsKey(name) {
				current = schema.KeyDefault(name)
			}
			if !c.equal(s.typ.Field(name).Type, v, current, at) {
				return false
			}
		}
		return true
	case s.equal != nil:
		return c.equal(s.typ, s.equal, element, at)
	}
	if s.name == firstContainer {
		return i == 0
	}
	key, ok := elementKey(s.list, element)
	return ok && key == s.name
}

// Policies may write an object's spec and these fields of its metadata. They never write
// its identity, owners or status.
var writableMetadata = map[string]bool{"labels": true, "annotations": true}

// isReadOnly reports whether policies must not write a field of n.
func isReadOnly(n *node, name string) bool {
	switch {
	case n.parent == nil:
		return name == "status" || n.typ.Field(name) != nil && name != "metadata" && name != "spec"
	case n.parent.parent == nil && n.step == "metadata":
		return n.typ.Field(name) != nil && !writableMetadata[name]
	}
	return false
}

// writableField returns the field of a struct, if policies may write it.
func (b *planBuilder) writableField(n *node, name string) (*schema.Field, bool) {
	if b.rejectDirective(n, name) {
		return nil, false
	}
	if isReadOnly(n, name) {
		b.addInvalidChanges(b.policy, strings.TrimPrefix(n.path()+"."+name, "."), "cannot be written by any policy")
		return nil, false
	}
	field := n.typ.Field(name)
	if field == nil {
		b.addUnknownField(n.path(), n.typ, name)
	}
	return field, field != nil
}

func (b *planBuilder) addUnknownField(path string, t *schema.Type, name string) {
	message := rootName(b.root.typ) + " has no such field"
	if like := similarField(t, name); like != "" {
		message += "; did you mean " + like + "?"
	}
	b.addInvalidChanges(b.policy, strings.TrimPrefix(path+"."+name, "."), "%s", message)
}

// similarField returns a field whose name differs in case only.
func similarField(t *schema.Type, name string) string {
	for _, known := range slices.Sorted(slices.Values(t.Fields())) {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return ""
}

// rejectDirective rejects keys that are directives of other merge formats. No field of
// Kubernetes starts like that.
func (b *planBuilder) rejectDirective(n *node, key string) bool {
	if strings.HasPrefix(key, "$") {
		b.addInvalidChanges(b.policy, strings.TrimPrefix(n.path()+"."+key, "."),
			"is a merge directive, which policies do not support: use remove, append or null in overrides")
		return true
	}
	return false
}

// sortedKeys makes messages deterministic.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// rootType returns the type of an object: a Job, or otherwise a pod, since a template has
// no kind.
func rootType(object map[string]any) *schema.Type {
	if schema.AsString(object["apiVersion"]) == batchv1.SchemeGroupVersion.String() && schema.AsString(object["kind"]) == "Job" {
		return schema.Job()
	}
	return schema.Pod()
}

// podPath leads from the root to its pod.
func podPath(root *schema.Type) []string {
	if root == schema.Job() {
		return []string{"spec", "template"}
	}
	return nil
}

// rootName names the root in a sentence.
func rootName(root *schema.Type) string { return "a " + rootNames[root] }

var rootNames = map[*schema.Type]string{schema.Pod(): "pod", schema.Job(): "Job"}
