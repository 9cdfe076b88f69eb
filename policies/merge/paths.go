// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

	"sluice.dev/policies/merge/defaulted"
	"sluice.dev/policies/merge/schema"
)

// pathStep is one of a policy's path, read with the schema.
type pathStep struct {
	// field or entry is its name in a struct or a dict.
	name string
	// all stands for every element or entry.
	all bool
	// match are fields that an element must have.
	match map[string]any
	// equal is a scalar that an element must be; nil if not asked for.
	equal any
	// field and typ are what it leads to, list what it chooses from.
	field *schema.Field
	typ   *schema.Type
	list  *schema.Type
}

// resolvePath reads a policy's path along the schema. It returns false, and has noted the
// fault, if a pod has no such path or if no policy may touch it.
func (b *planBuilder) resolvePath(rule string, path Path) ([]pathStep, bool) {
	fault := func(format string, args ...any) ([]pathStep, bool) {
		b.addInvalidChanges(b.policy, formatPath(rule, path), "%s", fmt.Sprintf(format, args...))
		return nil, false
	}
	if len(path) > maxDepth {
		return fault("has more than %d steps", maxDepth)
	}
	steps := make([]pathStep, 0, len(path))
	field, t := (*schema.Field)(nil), b.root.typ
	for i, part := range path {
		s := pathStep{field: field}
		name, isName := part.(string)
		switch {
		case strings.HasPrefix(name, "$"):
			return fault("%s is a merge directive, which policies do not support", name)
		case t.Kind == schema.KindStruct && isName:
			if !isWritable(steps, t, name) {
				return fault("cannot be written by any policy")
			}
			if s.field = t.Field(name); s.field == nil {
				return fault("%s has no field %s there", rootName(b.root.typ), name)
			}
			s.name, s.typ = name, s.field.Type
		case t.Kind == schema.KindMap && isName:
			s.name, s.all, s.typ = name, name == allContainers, t.Elem
		case t.Kind == schema.KindList:
			if problem := s.parseSelector(field, t, part); problem != "" {
				return fault("%s", problem)
			}
		default:
			return fault("step %d, %s, does not lead into %s", i+1, formatValue(part), t.Kind)
		}
		steps = append(steps, s)
		field, t = s.field, s.typ
	}
	if len(steps) < 2 {
		return fault("cannot be written as a whole")
	}
	return steps, true
}

// formatPath is a path as its author wrote it, for messages.
func formatPath(rule string, path Path) string {
	const longest = 200
	return rule + " " + truncate(canonicalJSON(path), longest)
}

// isWritable tells whether policies may touch the field of that name that follows
// the steps.
func isWritable(steps []pathStep, t *schema.Type, name string) bool {
	if t.Field(name) == nil {
		return len(steps) > 0 || name != "status" // else unknown, which is said
	}
	switch {
	case len(steps) == 0:
		return name == "metadata" || name == "spec"
	case len(steps) == 1 && steps[0].name == "metadata":
		return writableMetadata[name]
	}
	return true
}

// parseSelector reads which elements of a list a step stands for.
func (s *pathStep) parseSelector(field *schema.Field, list *schema.Type, part any) (problem string) {
	s.list, s.typ = list, list.Elem
	switch part := part.(type) {
	case string:
		switch {
		case part == allContainers:
			s.all = true
		case defaulted.IsContainerList(field):
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

// matchesElement tells whether the step stands for this element, which is at index i.
func (s *pathStep) matchesElement(c comparer, i int, element any, at defaulted.Location) bool {
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
				have = schema.KeyDefault(name)
			}
			if !c.equal(s.typ.Field(name).Type, v, have, at) {
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

// What no policy can write: who the object is, who owns it, and how it fares.
// Of the object only its spec is open to policies, and of its metadata these.
var writableMetadata = map[string]bool{"labels": true, "annotations": true}

// isReadOnly tells whether a field of n cannot be written by any policy.
func isReadOnly(n *node, name string) bool {
	switch {
	case n.parent == nil:
		return name == "status" || n.typ.Field(name) != nil && name != "metadata" && name != "spec"
	case n.parent.parent == nil && n.step == "metadata":
		return n.typ.Field(name) != nil && !writableMetadata[name]
	}
	return false
}

// writableField finds the field of a struct that a policy may write.
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

// similarField is a field whose name differs in case only, and empty if there is none.
func similarField(t *schema.Type, name string) string {
	for _, known := range slices.Sorted(slices.Values(t.Fields())) {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return ""
}

// rejectDirective refuses keys that are directives to other mergers: nothing of Kubernetes
// begins so, and it would be strange to find them written into the object.
func (b *planBuilder) rejectDirective(n *node, key string) bool {
	if strings.HasPrefix(key, "$") {
		b.addInvalidChanges(b.policy, strings.TrimPrefix(n.path()+"."+key, "."), "is a merge directive, which policies do not support: use remove, append or null in overrides")
		return true
	}
	return false
}

// sortedKeys of a map, for messages.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// rootType is what an object consists of: a Job is one, all else is a pod, since a
// template may not say what it is.
func rootType(object map[string]any) *schema.Type {
	if schema.AsString(object["apiVersion"]) == batchv1.SchemeGroupVersion.String() && schema.AsString(object["kind"]) == "Job" {
		return schema.Job()
	}
	return schema.Pod()
}

// podPath leads from the root to the pod in it.
func podPath(root *schema.Type) []string {
	if root == schema.Job() {
		return []string{"spec", "template"}
	}
	return nil
}

// rootName names the root in a sentence.
func rootName(root *schema.Type) string { return "a " + rootNames[root] }

var rootNames = map[*schema.Type]string{schema.Pod(): "pod", schema.Job(): "Job"}
