// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"

	"sluice.dev/policies/merge/schema"
)

// Apply applies the changes of all policies to a pod, a pod template (metadata and spec)
// or a Job, as if at once. The cluster describes the defaults of its API server; the zero
// value fits most clusters.
//
// Apply changes neither the object nor the changes; the result shares memory with both.
// The error is an [*InvalidObjectError], a [*ConflictError], or one or several joined
// [*InvalidChangesError]. It does not depend on the order of the changes.
func Apply(object map[string]any, desired []DesiredChanges, cluster schema.ClusterDefaults) (Result, error) {
	if err := validateSize(object, desired); err != nil {
		return Result{}, err
	}
	plan, err := newPlan(object, desired)
	if err != nil {
		return Result{}, err
	}
	return plan.apply(object, cluster)
}

// ApplyRequired applies what must hold in the final object, as [Apply] does: overrides, node requirements and
// removals. It sets no defaults, and appends elements only to a list that an override replaces.
func ApplyRequired(object map[string]any, desired []DesiredChanges, cluster schema.ClusterDefaults) (Result, error) {
	required := slices.Clone(desired)
	for i := range required {
		required[i].Defaults = nil
	}
	if err := validateSize(object, required); err != nil {
		return Result{}, err
	}
	plan, err := newPlan(object, required)
	if err != nil {
		return Result{}, err
	}
	plan.root.walk(func(n *node) { n.appends = nil })
	return plan.apply(object, cluster)
}

func (p *plan) apply(object map[string]any, cluster schema.ClusterDefaults) (Result, error) {
	r := &applier{plan: p, cluster: cluster, compare: comparer{cluster}, object: object}
	r.applyUntilStable()
	if err := r.err(); err != nil {
		return Result{}, err
	}
	r.revertDefaults(object)
	slices.SortFunc(r.warnings, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), slices.Compare(a.Policies, b.Policies))
	})
	return Result{Object: r.object, Warnings: r.warnings, ChangedPaths: pathsByPolicy(r.changes), original: object}, nil
}

// applier applies one plan.
type applier struct {
	errorCollector
	plan    *plan
	cluster schema.ClusterDefaults
	compare comparer
	// object is the object at the start of a phase, with its field managers.
	object map[string]any
	phase  phase
	// newElementDepth counts the new elements around the current node.
	newElementDepth int
	warnings        []Warning
	changes         []appliedChange
	// partlyRemoved are defaults of which removals deleted a part.
	partlyRemoved []*node
	// removedBy are the policies that removed an element or field, by path.
	removedBy map[string][]string
}

// maxRounds limits how often a plan is applied. One or two rounds are usual: a policy's
// value may make another field open for a default.
const maxRounds = 20

// applyUntilStable applies the plan until it changes nothing.
func (r *applier) applyUntilStable() {
	before := stageInitial
	for range maxRounds {
		changed := r.applyRemovals(before)
		if r.applyPhase(overridePhase) {
			r.applyRemovals(stageAfterOverrides)
			changed = true
		}
		for range maxRounds {
			if !r.applyPhase(defaultPhase) {
				break
			}
			r.applyRemovals(stageAfterDefaults)
			changed = true
		}
		if r.applyPhase(appendPhase) {
			changed = true
		}
		if !changed || r.err() != nil {
			return
		}
		before = stageAfterAppends
	}
	last := r.changes[len(r.changes)-1]
	for _, policy := range last.policies {
		r.addInvalidChanges(policy, last.path, "never settles: the policies change it each time they are applied")
	}
}

// applyPhase applies one phase of the plan, and reports whether something changed.
func (r *applier) applyPhase(p phase) bool {
	if r.plan.root.phases&p == 0 || r.err() != nil {
		return false
	}
	r.phase = p
	out, changed := r.applyNode(r.plan.root, r.object, schema.Location{Object: r.object})
	if changed {
		r.object, _ = out.(map[string]any)
	}
	return changed
}

func (r *applier) recordChange(n *node, policies []string, path string) {
	r.changes = append(r.changes, appliedChange{n, policies, path})
}

// recordOverwrite records a change, and warns unless the author left the field open.
func (r *applier) recordOverwrite(n *node, w leafValue, path string, before, after any) {
	r.recordChange(n, w.policies, path)
	if !n.open {
		r.warnings = append(r.warnings, Warning{w.policies, path, before, after})
	}
}

// recordOpen records, on the first visit only, whether the author left a part open: later
// values may be those of policies.
func (n *node) recordOpen(open bool) {
	if !n.openKnown {
		n.openKnown, n.open = true, open
	}
}

// isOpen reports whether the author left a part open.
func (r *applier) isOpen(n *node, at schema.Location, v any) bool {
	switch n.kind {
	case fieldNode:
		return r.cluster.IsOpen(n.field, at, v)
	case entryNode:
		return v == nil || r.cluster.IsDefaulted(n.field, at.AtEntry(n.step), v)
	}
	return v == nil || r.newElementDepth > 0
}

// isAuthored reports whether a part contains anything that its author wrote.
func (r *applier) isAuthored(n *node, at schema.Location, v any) bool {
	if n.kind == elementNode {
		return r.cluster.IsAuthoredElement(n.field, at, v)
	}
	return r.cluster.IsAuthored(n.field, at, v)
}

// applyNode applies the plan to one part in the current phase. It returns the new value,
// nil if the part is removed, and whether that is a change. It does not modify its
// arguments.
func (r *applier) applyNode(n *node, current any, at schema.Location) (any, bool) {
	switch {
	case n.phases&r.phase == 0:
		return current, false
	case n.isLeaf():
		return r.applyLeaf(n, current, at)
	case n.isRemoved():
		return r.applyNull(n, current, at)
	case n.typ.Kind == schema.KindList:
		return r.applyList(n, current, at)
	}
	object, ok := current.(map[string]any)
	if !ok && current != nil {
		r.addInvalidObject(n.path(), "must be "+n.typ.Kind.String()+", not "+describeKind(current))
		return current, false
	}
	return r.applyChildren(n, object, at)
}

// applyChildren visits the fields of a struct or the entries of a map.
func (r *applier) applyChildren(n *node, before map[string]any, at schema.Location) (any, bool) {
	if n.typ.Kind == schema.KindStruct {
		at = at.AtStruct(before)
	}
	after, changed := before, false
	for _, child := range n.children {
		if child.phases&r.phase == 0 {
			continue
		}
		if child.kind == unionNode {
			after = r.applyUnion(child, before, after, at)
			changed = changed || !schema.IsSameInstance(before, after)
			continue
		}
		v, different := r.applyNode(child, before[child.step], at)
		if !different {
			continue
		}
		if !changed {
			after, changed = cloneMap(before), true
		}
		if v == nil {
			delete(after, child.step)
		} else {
			after[child.step] = v
		}
	}
	if changed {
		r.applyCoupled(n, before, after)
	}
	return after, changed
}

// applyCoupled updates the fields that depend on what the policies changed.
func (r *applier) applyCoupled(n *node, before, after map[string]any) {
	for _, m := range updateCoupledFields(n.typ, before, after, n) {
		cause := n.child(m.cause, fieldNode)
		if entry := cause.child(m.entry, entryNode); entry != nil {
			cause = entry
		}
		r.recordChange(cause, cause.policiesIn(r.phase), n.path()+m.path)
	}
}

// policiesIn returns the policies that set n itself in a phase.
func (n *node) policiesIn(p phase) []string {
	switch {
	case p == overridePhase && len(n.overrides) > 0:
		return n.overrides[0].policies
	case p == defaultPhase && len(n.defaults) > 0:
		return n.defaults[0].policies
	}
	return nil
}

// applyNull applies an override with null. A value that the API server would set again
// counts as removed.
func (r *applier) applyNull(n *node, current any, at schema.Location) (any, bool) {
	if r.phase != overridePhase {
		return current, false
	}
	authored := current != nil && r.isAuthored(n, at, current)
	if n.recordOpen(!authored); !authored {
		return current, false
	}
	r.recordOverwrite(n, n.overrides[0], n.path(), current, nil)
	return nil, true
}

// applyLeaf writes a value as a whole.
func (r *applier) applyLeaf(n *node, current any, at schema.Location) (any, bool) {
	if r.phase == appendPhase {
		return r.applyAppends(n, current, at)
	}
	open := r.isOpen(n, at, current)
	n.recordOpen(open)
	w, ok := r.desiredNow(n, open)
	if !ok {
		return current, false
	}
	desired := w.value
	if desired == nil && open {
		return current, false
	}
	if hasStandardTolerations(n.field) {
		desired = keepStandardTolerations(desired, current)
	}
	if r.isSatisfied(n, current, desired, at) {
		return current, false
	}
	r.recordOverwrite(n, w, n.path(), current, desired)
	return desired, true
}

// desiredNow returns the value that the current phase sets on a leaf.
func (r *applier) desiredNow(n *node, open bool) (leafValue, bool) {
	switch {
	case r.phase == overridePhase && len(n.overrides) > 0:
		return n.overrides[0], !n.overrides[0].implied
	case r.phase == defaultPhase && len(n.overrides) == 0 && len(n.defaults) > 0:
		return n.defaults[0], open && !n.suppressed && !n.defaults[0].implied
	}
	return leafValue{}, false
}

// isSatisfied reports whether a leaf has the desired value. An absent leaf has not: the
// API server may set another value once all is written.
func (r *applier) isSatisfied(n *node, current, desired any, at schema.Location) bool {
	switch {
	case n.kind != fieldNode:
		return current != nil && desired != nil && r.compare.equal(n.typ, current, desired, at)
	case schema.IsAbsent(n.field, current):
		return schema.IsAbsent(n.field, desired)
	}
	return r.compare.equalFields(n.field, n.step, at.Parent, at.Parent, current, desired, at)
}
