// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"

	"sluice.dev/policies/merge/schema"
)

// detectConflicts finds conflicts in the plan: different values for one part, and a
// removal of a part that is written. removed are the policies that remove a part around
// n.
func (b *planBuilder) detectConflicts(n *node, removed []string) {
	if len(n.overrides) > 1 {
		b.addLeafConflict(n, n.overrides)
	}
	if len(n.defaults) > 1 && len(n.overrides) == 0 && removed == nil { // otherwise the override or removal wins
		b.addLeafConflict(n, n.defaults)
	}
	if removed == nil && n.isRemoved() {
		removed = n.removers()
		if writers := n.innerWriters(); len(writers) > 0 {
			b.addConflict(n.path(), DesiredValue{Policies: removed}, DesiredValue{Policies: writers, Nested: true})
		}
	}
	for _, child := range n.children {
		b.detectConflicts(child, removed)
	}
}

func (b *planBuilder) addLeafConflict(n *node, values []leafValue) {
	var all []DesiredValue
	for _, w := range values {
		all = append(all, DesiredValue{Policies: w.policies, Value: w.value})
	}
	b.addConflict(n.path(), all...)
}

// writers returns the policies that write n or parts of it.
func (n *node) writers() []string {
	writers := n.innerWriters()
	for _, w := range n.overrides {
		if w.value != nil {
			writers = append(writers, w.policies...)
		}
	}
	slices.Sort(writers)
	return slices.Compact(writers)
}

// innerWriters returns the policies that write parts of n, or add to it.
func (n *node) innerWriters() []string {
	writers := slices.Clone(n.overridePresence.policies)
	for _, a := range n.appends {
		writers = append(writers, a.policy)
	}
	for _, r := range n.requirements {
		writers = append(writers, r.policies...)
	}
	for _, child := range n.children {
		writers = append(writers, child.writers()...)
	}
	slices.Sort(writers)
	return slices.Compact(writers)
}

// walk calls f for a node and all nodes below.
func (n *node) walk(f func(*node)) {
	f(n)
	for _, child := range n.children {
		child.walk(f)
	}
}

// composeList adds appended elements and requirements to an override of the whole list,
// so that the override is satisfied by the final list.
func composeList(n *node) {
	if len(n.overrides) == 1 && n.overrides[0].value != nil {
		w := &n.overrides[0]
		if len(n.appends) > 0 {
			list, _ := w.value.([]any)
			w.value, _ = appendMissing(comparer{}, n, list, noLocation)
		}
		if len(n.requirements) > 0 {
			w.value, _ = withRequirements(w.value, n.requirements)
		}
	}
	for _, child := range n.children {
		composeList(child)
	}
}

// removeMatch decides about one match of a removal, and records it. If a policy wrote the
// match, that is a conflict, unless it was only a default: the default is removed.
func (t *remover) removeMatch(s planPosition, v any) bool {
	var writers []string
	if t.stage >= stageAfterOverrides {
		writers = s.overriders()
	}
	if t.stage >= stageAfterAppends && len(writers) == 0 {
		writers = s.appenders(t.compare, v)
	}
	if len(writers) > 0 {
		t.addConflict(t.path(), DesiredValue{Policies: t.policies}, DesiredValue{Policies: writers, Value: v})
		return false
	}
	if t.defaultsOnly = t.stage >= stageAfterDefaults && t.suppressDefaults(s); t.defaultsOnly {
		return true
	}
	path := t.path()
	if t.removedBy == nil {
		t.removedBy = map[string][]string{}
	}
	t.removedBy[path] = t.policies
	t.recordChange(nil, t.policies, path)
	t.warnings = append(t.warnings, Warning{t.policies, path, v, nil})
	return true
}

// overriders returns the policies whose overrides wrote the part.
func (s planPosition) overriders() []string {
	switch {
	case s.node != nil:
		return s.node.overriders()
	case s.leaf != nil:
		return s.leaf.overriders()
	}
	return nil
}

// suppressDefaults prevents the defaults that wrote the part from being set again. It
// reports whether there are any.
func (r *applier) suppressDefaults(s planPosition) bool {
	found := false
	switch {
	case s.node != nil:
		s.node.walk(func(n *node) {
			if n.phases&defaultPhase != 0 {
				n.suppressed, n.reverted, found = true, true, true
			}
		})
	case s.leaf != nil && len(s.leaf.defaults) > 0:
		s.leaf.suppressed, found = true, true
		r.partlyRemoved = append(r.partlyRemoved, s.leaf)
	}
	return found
}

// revertDefaults marks the partly removed defaults that no longer differ from the
// original.
func (r *applier) revertDefaults(original map[string]any) {
	for _, n := range r.partlyRemoved {
		before, after := valueAt(original, n), valueAt(r.object, n)
		n.reverted = schema.Equal(before, after) || schema.IsAbsent(n.field, before) && schema.IsAbsent(n.field, after)
	}
}

// appenders returns the policies that appended the part, or require it of nodes.
func (s planPosition) appenders(c comparer, v any) []string {
	if s.node != nil {
		return s.node.writers()
	}
	if s.leaf == nil {
		return nil
	}
	var appenders []string
	for _, a := range s.leaf.appends {
		if c.equal(s.leaf.typ.Elem, a.value, v, noLocation) {
			appenders = append(appenders, a.policy)
		}
	}
	if len(appenders) > 0 {
		slices.Sort(appenders)
		return slices.Compact(appenders)
	}
	return s.leaf.writers()
}
