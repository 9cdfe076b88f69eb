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

// removal is one path of which every match is removed.
type removal struct {
	policies []string
	steps    []pathStep
	text     string // canonical JSON, which identifies it
}

// collectRemovals adds a policy's removals to the sorted list of all. Equal ones are
// combined.
func (b *planBuilder) collectRemovals(all []removal, paths []Path) []removal {
	for _, path := range paths {
		steps, ok := b.resolvePath("remove", path)
		if !ok || !b.validateRemoval(path, steps) {
			continue
		}
		made := removal{[]string{b.policy}, steps, canonicalJSON(path)}
		at, found := slices.BinarySearchFunc(all, made, func(a, b removal) int { return cmp.Compare(a.text, b.text) })
		if found {
			all[at].policies = addPolicy(all[at].policies, b.policy)
		} else {
			all = slices.Insert(all, at, made)
		}
	}
	return all
}

// validateRemoval rejects removals that would never finish, or would leave an element
// without a key.
func (b *planBuilder) validateRemoval(path Path, steps []pathStep) bool {
	last, before := steps[len(steps)-1], steps[len(steps)-2]
	switch {
	case last.list != nil && schema.IsContainerList(last.field) && last.name == firstContainer:
		b.addInvalidChanges(b.policy, formatPath("remove", path), "would remove one main container after another: name the container")
	case last.list == nil && before.list != nil && before.list.IsKey(last.name):
		b.addInvalidChanges(b.policy, formatPath("remove", path), "identifies the elements of the list: remove the element")
	default:
		return true
	}
	return false
}

// stage is the time of a removal. A later match was written by a policy, or follows from
// what a policy wrote.
type stage uint8

const (
	stageInitial stage = iota
	stageAfterOverrides
	stageAfterDefaults
	stageAfterAppends
)

// applyRemovals applies all removals until none matches. It reports whether one did.
func (r *applier) applyRemovals(s stage) bool {
	found := false
	for again := true; again; {
		again = false
		for i := range r.plan.removals {
			if r.err() != nil {
				return found
			}
			t := remover{applier: r, stage: s, removal: &r.plan.removals[i]}
			root := r.plan.root
			out, changed := t.removeFrom(nil, root.typ, r.object, t.steps, schema.Location{Object: r.object}, planPosition{node: root})
			if changed {
				r.object, _ = out.(map[string]any)
				found, again = true, true
			}
		}
	}
	return found
}

// remover applies one removal.
type remover struct {
	*applier
	*removal
	stage stage
	trail []string // steps of the current path
	// defaultsOnly: the last match was only a default of a policy.
	defaultsOnly bool
}

func (t *remover) path() string { return strings.TrimPrefix(strings.Join(t.trail, ""), ".") }

func (t *remover) pushStep(step string, kind nodeKind) {
	t.trail = append(t.trail, formatStep(step, kind))
}
func (t *remover) popStep() { t.trail = t.trail[:len(t.trail)-1] }

// planPosition is the plan's view of the current part: its node, if there is one, or the
// leaf that contains it.
type planPosition struct{ node, leaf *node }

// child returns the position of a child.
func (s planPosition) child(step string, kind nodeKind, f *schema.Field) planPosition {
	if s.node == nil {
		return planPosition{nil, s.leaf}
	}
	if s.node.isLeaf() {
		return planPosition{nil, s.node}
	}
	if kind == fieldNode && f.Union {
		return planPosition{nil, s.node.child("", unionNode)}
	}
	return planPosition{s.node.child(step, kind), s.leaf}
}

// removeFrom returns a part without what the steps select, and whether that is a change.
// It does not modify its arguments, and ignores parts that do not have the structure of a
// pod.
func (t *remover) removeFrom(
	f *schema.Field, typ *schema.Type, v any, steps []pathStep, at schema.Location, s planPosition,
) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		switch typ.Kind {
		case schema.KindStruct:
			return t.removeFromStruct(typ, v, steps, at.AtStruct(v), s)
		case schema.KindMap:
			return t.removeFromMap(f, v, steps[0], at, s)
		}
	case []any:
		if typ.Kind == schema.KindList {
			return t.removeFromList(f, typ, v, steps, at, s)
		}
	}
	return v, false
}

func (t *remover) removeFromStruct(
	typ *schema.Type, object map[string]any, steps []pathStep, at schema.Location, s planPosition,
) (any, bool) {
	next := &steps[0]
	in := object[next.name]
	if in == nil {
		return object, false
	}
	t.pushStep(next.name, fieldNode)
	defer t.popStep()
	below := s.child(next.name, fieldNode, next.field)
	out, changed := any(nil), false
	if len(steps) > 1 {
		out, changed = t.removeFrom(next.field, next.typ, in, steps[1:], at, below)
	} else if t.cluster.IsAuthored(next.field, at, in) {
		changed = t.removeMatch(below, in)
		if hasStandardTolerations(next.field) {
			out = keepStandardTolerations(nil, in)
		}
	}
	if !changed {
		return object, false
	}
	after := cloneMap(object)
	if isEmpty(out) {
		delete(after, next.name)
	} else {
		after[next.name] = out
	}
	t.popStep()
	for _, m := range updateCoupledFields(typ, object, after, s.node) {
		if !t.defaultsOnly {
			t.recordChange(nil, t.policies, t.path()+m.path)
		}
	}
	t.pushStep(next.name, fieldNode)
	return after, true
}

// isEmpty reports whether a list or a removed value is empty. An empty struct is a value:
// an emptyDir, for example.
func isEmpty(v any) bool {
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
}

func (t *remover) removeFromMap(f *schema.Field, entries map[string]any, step pathStep, at schema.Location, s planPosition) (any, bool) {
	names := []string{step.name}
	if step.all {
		names = sortedKeys(entries)
	}
	after := entries
	for _, name := range names {
		v := entries[name]
		if v == nil || t.cluster.IsDefaulted(f, at.AtEntry(name), v) {
			continue
		}
		t.pushStep(name, entryNode)
		if t.removeMatch(s.child(name, entryNode, f), v) {
			if schema.IsSameInstance(after, entries) {
				after = cloneMap(entries)
			}
			delete(after, name)
		}
		t.popStep()
	}
	switch {
	case schema.IsSameInstance(after, entries):
		return entries, false
	case len(after) == 0:
		return nil, true
	}
	return after, true
}

func (t *remover) removeFromList(
	f *schema.Field, list *schema.Type, elements []any, steps []pathStep, at schema.Location, s planPosition,
) (any, bool) {
	var after []any // nil until something changes
	for i, element := range elements {
		out, changed := t.removeFromElement(f, list, i, element, steps, at, s)
		if changed && after == nil {
			after = slices.Clone(elements[:i])
		}
		if after != nil && out != nil {
			after = append(after, out)
		}
	}
	if after == nil {
		return elements, false
	}
	return after, true
}

// removeFromElement returns the new element, nil if it is removed.
func (t *remover) removeFromElement(
	f *schema.Field, list *schema.Type, i int, element any, steps []pathStep, at schema.Location, s planPosition,
) (any, bool) {
	in := at.AtElement(f, schema.AsMap(element))
	if !steps[0].matchesElement(t.compare, i, element, in) {
		return element, false
	}
	key, keyed := "", false
	if list.IsAssociative() {
		key, keyed = elementKey(list, element)
	}
	var below planPosition
	if keyed {
		below = s.child(key, elementNode, f)
	} else {
		key = strconv.Itoa(i)
		below = s.child("", elementNode, f)
	}
	t.pushStep(key, elementNode)
	defer t.popStep()
	if len(steps) > 1 {
		return t.removeFrom(f, list.Elem, element, steps[1:], in, below)
	}
	if t.cluster.IsAuthoredElement(f, at, element) && t.removeMatch(below, element) {
		return nil, true
	}
	return element, false
}
