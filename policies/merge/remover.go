// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/policies/merge/defaulted"
	"sluice.dev/policies/merge/schema"
)

// removal is one path of which every match is taken out.
type removal struct {
	policies []string
	steps    []pathStep
	text     string // canonical: what tells it from others
}

// collectRemovals adds a policy's to those of all, equal ones once, sorted.
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

// validateRemoval refuses what would never be done with, or would leave an element that
// nobody can name.
func (b *planBuilder) validateRemoval(path Path, steps []pathStep) bool {
	last, before := steps[len(steps)-1], steps[len(steps)-2]
	switch {
	case last.list != nil && defaulted.IsContainerList(last.field) && last.name == firstContainer:
		b.addInvalidChanges(b.policy, formatPath("remove", path), "would remove one main container after another: name the container")
	case last.list == nil && before.list != nil && before.list.IsKey(last.name):
		b.addInvalidChanges(b.policy, formatPath("remove", path), "identifies the elements of the list: remove the element")
	default:
		return true
	}
	return false
}

// stage is when removals are done. What matches later was written by a policy, or
// came to match by what one wrote.
type stage uint8

const (
	stageInitial stage = iota
	stageAfterOverrides
	stageAfterDefaults
	stageAfterAppends
)

// applyRemovals does all removals, until none finds anything. It tells whether one did.
func (r *applier) applyRemovals(s stage) bool {
	found := false
	for again := true; again; {
		again = false
		for i := range r.plan.removals {
			if r.err() != nil {
				return found
			}
			t := remover{applier: r, stage: s, removal: &r.plan.removals[i]}
			out, changed := t.removeFrom(nil, r.plan.root.typ, r.object, t.steps, defaulted.Location{Object: r.object}, planPosition{node: r.plan.root})
			if changed {
				r.object, _ = out.(map[string]any)
				found, again = true, true
			}
		}
	}
	return found
}

// remover does one removal.
type remover struct {
	*applier
	*removal
	stage stage
	trail []string // segments of the path to where it is
	// defaultsOnly tells that what was taken out last was only a default.
	defaultsOnly bool
}

func (t *remover) path() string { return strings.TrimPrefix(strings.Join(t.trail, ""), ".") }

func (t *remover) pushStep(step string, form nodeKind) {
	t.trail = append(t.trail, formatStep(step, form))
}
func (t *remover) popStep() { t.trail = t.trail[:len(t.trail)-1] }

// planPosition is what the plan says of where a taker is: the node of that very part, if
// there is one, and the leaf that it is in, if it is in one.
type planPosition struct{ node, leaf *node }

// child is the spot of a part.
func (s planPosition) child(step string, form nodeKind, f *schema.Field) planPosition {
	if s.node == nil {
		return planPosition{nil, s.leaf}
	}
	if s.node.isLeaf() {
		return planPosition{nil, s.node}
	}
	if form == fieldNode && f.Union {
		return planPosition{nil, s.node.child("", unionNode)}
	}
	return planPosition{s.node.child(step, form), s.leaf}
}

// removeFrom returns a part without what the steps lead to from it, and whether that is
// a change; what it was given stays as it is. What is not of a pod's form has
// nothing to take out.
func (t *remover) removeFrom(f *schema.Field, typ *schema.Type, v any, steps []pathStep, at defaulted.Location, s planPosition) (any, bool) {
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

func (t *remover) removeFromStruct(typ *schema.Type, object map[string]any, steps []pathStep, at defaulted.Location, s planPosition) (any, bool) {
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

// isEmpty tells whether nothing is left of a list or a dict. Of a struct that is
// something: an emptyDir is one.
func isEmpty(v any) bool {
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
}

func (t *remover) removeFromMap(f *schema.Field, dict map[string]any, step pathStep, at defaulted.Location, s planPosition) (any, bool) {
	names := []string{step.name}
	if step.all {
		names = sortedKeys(dict)
	}
	after := dict
	for _, name := range names {
		v := dict[name]
		if v == nil || t.cluster.IsDefaulted(f, at.AtEntry(name), v) {
			continue
		}
		t.pushStep(name, entryNode)
		if t.removeMatch(s.child(name, entryNode, f), v) {
			if schema.IsSameInstance(after, dict) {
				after = cloneMap(dict)
			}
			delete(after, name)
		}
		t.popStep()
	}
	switch {
	case schema.IsSameInstance(after, dict):
		return dict, false
	case len(after) == 0:
		return nil, true
	}
	return after, true
}

func (t *remover) removeFromList(f *schema.Field, list *schema.Type, elements []any, steps []pathStep, at defaulted.Location, s planPosition) (any, bool) {
	var after []any // once something changed
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

// removeFromElement returns the element as it shall be, nil if it shall go.
func (t *remover) removeFromElement(f *schema.Field, list *schema.Type, i int, element any, steps []pathStep, at defaulted.Location, s planPosition) (any, bool) {
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
