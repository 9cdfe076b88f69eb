// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/policies/merge/schema"
)

// mode is the partial object that contains a value: defaults or overrides.
type mode uint8

const (
	modeDefault mode = iota
	modeOverride
)

func (m mode) phase() phase {
	if m == modeDefault {
		return defaultPhase
	}
	return overridePhase
}

// planBuilder builds one plan from the changes of all policies.
type planBuilder struct {
	errorCollector
	object    map[string]any
	root      *node
	nodeCount int
	policy    string // whose changes are being read
	// containerReads are changes to containers by name, or to all. They are read once all
	// containers are known. elementReads, for elements of any list, follow.
	containerReads, elementReads []func()
	freeNodes                    []node // allocated ahead
}

// plan holds the changes of all policies, without conflicts.
type plan struct {
	root     *node
	removals []removal
}

// newPlan reads the changes. It returns an error if those of a policy are invalid, or if
// two policies conflict.
func newPlan(object map[string]any, desired []DesiredChanges) (*plan, error) {
	b := &planBuilder{object: object, root: &node{typ: rootType(object)}}
	p := &plan{root: b.root}
	var requirements []requirement
	for i := range desired {
		in := &desired[i]
		b.policy = in.Policy
		if in.Defaults != nil {
			b.addFields(b.root, in.Defaults, modeDefault)
		}
		if in.Overrides != nil {
			b.addFields(b.root, in.Overrides, modeOverride)
		}
		requirements = b.collectRequirements(requirements, in.Nodes)
		p.removals = b.collectRemovals(p.removals, in.Remove)
		for position, addition := range in.Append {
			b.addAddition(position, addition)
		}
	}
	for _, read := range slices.Concat(b.containerReads, b.elementReads) {
		read()
	}
	if err := b.err(); err != nil {
		return nil, err
	}
	b.addRequirements(requirements)
	b.detectConflicts(b.root, nil)
	if err := b.err(); err != nil {
		return nil, err
	}
	composeList(b.root)
	return p, nil
}

// child returns the node of a part, which it creates if needed.
func (b *planBuilder) child(n *node, step string, kind nodeKind, field *schema.Field, typ *schema.Type) *node {
	if child := n.child(step, kind); child != nil {
		return child
	}
	if len(b.freeNodes) == 0 {
		b.freeNodes = make([]node, 32)
	}
	child := &b.freeNodes[0]
	b.freeNodes = b.freeNodes[1:]
	*child = node{parent: n, step: step, kind: kind, field: field, typ: typ}
	n.addChild(child)
	b.nodeCount++
	return child
}

func (b *planBuilder) field(n *node, f *schema.Field) *node {
	return b.child(n, f.Name, fieldNode, f, f.Type)
}

// addValue reads the value of a part.
func (b *planBuilder) addValue(n *node, v any, m mode) {
	switch {
	case b.nodeCount > maxPlanNodes:
		b.addPlanTooLarge()
	case v == nil:
		b.addNull(n, m)
	case n.isLeaf():
		if b.validateLeaf(n, n.typ, v) {
			b.addLeafValue(n, m, v, false)
		}
	case n.typ.Kind == schema.KindList:
		b.addList(n, v, m)
	default:
		object, ok := v.(map[string]any)
		switch {
		case !ok:
			b.addInvalidChanges(b.policy, n.path(), "must be %s, not %s", n.typ.Kind, describeKind(v))
		case n.typ.Kind == schema.KindMap:
			b.addEntries(n, object, m)
		default:
			b.addFields(n, object, m)
		}
	}
}

func (b *planBuilder) addFields(n *node, object map[string]any, m mode) {
	var union map[string]any
	for name, v := range object {
		field, ok := b.writableField(n, name)
		switch {
		case !ok:
		case n.kind == elementNode && n.parent.typ.IsKey(name): // addList reads it
		case field.Union:
			if union == nil {
				union = map[string]any{}
			}
			union[name] = v
		default:
			b.addValue(b.field(n, field), v, m)
		}
	}
	if union != nil {
		b.addUnion(n, union, m)
	}
}

func (b *planBuilder) addEntries(n *node, object map[string]any, m mode) {
	for key, v := range object {
		if b.rejectDirective(n, key) {
			continue
		}
		b.addValue(b.child(n, key, entryNode, n.field, n.typ.Elem), v, m)
		b.implyRequest(n, key, v, m)
	}
}

// addNull reads a removal, in overrides.
func (b *planBuilder) addNull(n *node, m mode) {
	switch {
	case m == modeDefault:
		b.addInvalidChanges(b.policy, n.path(), "is null, which removes only in overrides; omit it from defaults")
	case n.parent == b.root:
		b.addInvalidChanges(b.policy, n.path(), "cannot be removed")
	case schema.IsContainerList(n.field) && n.kind == fieldNode:
		b.addInvalidChanges(b.policy, n.path(), "is null: use remove to remove containers")
	default:
		b.addLeafValue(n, m, nil, false)
	}
}

// validateLeaf reports whether a value has the type of a leaf, and records an error if
// not: a mistake must not vanish silently.
func (b *planBuilder) validateLeaf(n *node, t *schema.Type, v any) bool {
	where, problem := typeMismatch(t, v)
	if problem == "" {
		return true
	}
	b.addInvalidChanges(b.policy, n.path()+where, "%s", problem)
	return false
}

// typeMismatch returns where a value does not fit its type, and how; both are empty if it
// fits.
func typeMismatch(t *schema.Type, v any) (where, problem string) {
	var ok bool
	switch t.Kind {
	case schema.KindString:
		_, ok = v.(string)
	case schema.KindBool:
		_, ok = v.(bool)
	case schema.KindNumber:
		_, ok = schema.AsInt64(v)
	case schema.KindQuantity:
		_, ok = schema.ParseQuantity(v)
	case schema.KindIntOrString:
		if _, ok = v.(string); !ok {
			_, ok = schema.AsInt64(v)
		}
	case schema.KindAny:
		// Policies cannot write it.
	case schema.KindList:
		var list []any
		if list, ok = v.([]any); ok {
			return elementMismatch(t, list)
		}
	default:
		var object map[string]any
		if object, ok = v.(map[string]any); ok {
			return fieldMismatch(t, object)
		}
	}
	switch {
	case ok:
		return "", ""
	case v == nil:
		return "", "is null, which has nothing to remove here"
	}
	return "", fmt.Sprintf("must be %s, not %s", t.Kind, describeKind(v))
}

func elementMismatch(t *schema.Type, list []any) (where, problem string) {
	for i, element := range list {
		if where, problem := typeMismatch(t.Elem, element); problem != "" {
			return "[" + strconv.Itoa(i) + "]" + where, problem
		}
	}
	return "", ""
}

func fieldMismatch(t *schema.Type, object map[string]any) (where, problem string) {
	for name, in := range object {
		// The first by name, so that the same value gives the same message.
		if w, p := namedFieldMismatch(t, name, in); p != "" && (problem == "" || w < where) {
			where, problem = w, p
		}
	}
	return where, problem
}

func namedFieldMismatch(t *schema.Type, name string, v any) (where, problem string) {
	if t.Kind == schema.KindMap {
		if strings.HasPrefix(name, "$") {
			return "[" + name + "]", "is a merge directive, which policies do not support"
		}
		where, problem = typeMismatch(t.Elem, v)
		return "[" + name + "]" + where, problem
	}
	field := t.Field(name)
	if field == nil {
		return "." + name, "a pod has no such field"
	}
	where, problem = typeMismatch(field.Type, v)
	return "." + name + where, problem
}

// describeKind names a value in a sentence: "a list".
func describeKind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "the string " + formatValue(v)
	case bool:
		return "a boolean"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case int, int32, int64, float64, json.Number:
		return "the number " + formatValue(v)
	}
	return fmt.Sprintf("a %T, which is not JSON", v)
}
