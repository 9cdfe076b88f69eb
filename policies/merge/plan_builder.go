// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/policies/merge/defaulted"
	"sluice.dev/policies/merge/schema"
)

// mode is in which of an intent's two partial objects a value stands.
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

// planBuilder makes one plan of all intents.
type planBuilder struct {
	errorCollector
	object    map[string]any
	root      *node
	nodeCount int
	policy    string // whose intent is being read
	// containerReads is what speaks of containers by name or of all, which can be read once
	// it is known which there will be; and last what speaks of elements of any list.
	containerReads, elementReads []func()
	freeNodes                    []node // allocated ahead
}

// plan is what all intents want, without conflicts.
type plan struct {
	root     *node
	removals []removal
}

// newPlan reads the intents. It returns an error if one of them is at fault, or if
// two conflict.
func newPlan(object map[string]any, intents []DesiredChanges) (*plan, error) {
	b := &planBuilder{object: object, root: &node{typ: rootType(object)}}
	p := &plan{root: b.root}
	var requirements []requirement
	for i := range intents {
		in := &intents[i]
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

// child returns the node of a part, and makes it if the plan has none.
func (b *planBuilder) child(n *node, step string, form nodeKind, field *schema.Field, typ *schema.Type) *node {
	if kid := n.child(step, form); kid != nil {
		return kid
	}
	if len(b.freeNodes) == 0 {
		b.freeNodes = make([]node, 32)
	}
	kid := &b.freeNodes[0]
	b.freeNodes = b.freeNodes[1:]
	*kid = node{parent: n, step: step, kind: form, field: field, typ: typ}
	n.addChild(kid)
	b.nodeCount++
	return kid
}

func (b *planBuilder) field(n *node, f *schema.Field) *node {
	return b.child(n, f.Name, fieldNode, f, f.Type)
}

// addValue reads what is wanted of a part.
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
		case n.kind == elementNode && n.parent.typ.IsKey(name): // read with the list
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

// addNull removes, in overrides.
func (b *planBuilder) addNull(n *node, m mode) {
	switch {
	case m == modeDefault:
		b.addInvalidChanges(b.policy, n.path(), "is null, which removes only in overrides; omit it from defaults")
	case n.parent == b.root:
		b.addInvalidChanges(b.policy, n.path(), "cannot be removed")
	case defaulted.IsContainerList(n.field) && n.kind == fieldNode:
		b.addInvalidChanges(b.policy, n.path(), "is null: use remove to remove containers")
	default:
		b.addLeafValue(n, m, nil, false)
	}
}

// validateLeaf tells whether a policy's value for a leaf is what the pod has there, and
// notes the fault if not: a mistake must not vanish on its way.
func (b *planBuilder) validateLeaf(n *node, t *schema.Type, v any) bool {
	where, problem := typeMismatch(t, v)
	if problem == "" {
		return true
	}
	b.addInvalidChanges(b.policy, n.path()+where, "%s", problem)
	return false
}

// typeMismatch is where in a value something does not fit the type, and what; both are
// empty if all fits.
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
		// Nothing that a policy can write.
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
		// The first by name, so that the same intent has the same message.
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

// describeKind names what a value is: "a string", "a list".
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
