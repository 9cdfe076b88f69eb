// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"

	"sluice.dev/policies/merge/defaulted"
	"sluice.dev/policies/merge/schema"
)

// Apply applies all intents to a pod, a pod template (metadata and spec) or a Job,
// as if at once. The cluster is what its API server fills in that others do not; the
// zero value will do for most.
//
// Neither the object nor the intents are changed; the result shares memory with
// both. The error is of type [*ObjectError], or [*ConflictError], or one or
// several joined [*IntentError], and does not depend on the intents' order.
func Apply(object map[string]any, intents []DesiredChanges, cluster defaulted.Cluster) (Result, error) {
	if err := validateSize(object, intents); err != nil {
		return Result{}, err
	}
	plan, err := newPlan(object, intents)
	if err != nil {
		return Result{}, err
	}
	r := &applier{plan: plan, cluster: cluster, compare: comparer{cluster}, object: object}
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

// applier is one application of a plan.
type applier struct {
	errorCollector
	plan    *plan
	cluster defaulted.Cluster
	compare comparer
	// object is as it is when a phase begins: who wrote what is told from it.
	object map[string]any
	phase  phase
	// newElementDepth counts the elements being made that what is visited is in.
	newElementDepth int
	warnings        []Warning
	changes         []appliedChange
	// partlyRemoved are defaults of which removals took out a part.
	partlyRemoved []*node
	// removedBy is who took out which element or field, by path.
	removedBy map[string][]string
}

// maxRounds bounds how often a plan is applied. One or two are usual: what a policy
// writes may open to a default what the author had left to the API server.
const maxRounds = 20

// applyUntilStable applies the plan until nothing changes any more.
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

// applyPhase applies the plan's part for one phase, and tells whether something changed.
func (r *applier) applyPhase(p phase) bool {
	if r.plan.root.phases&p == 0 || r.err() != nil {
		return false
	}
	r.phase = p
	out, changed := r.applyNode(r.plan.root, r.object, defaulted.Location{Object: r.object})
	if changed {
		r.object, _ = out.(map[string]any)
	}
	return changed
}

// recordChange records that the policies changed a path.
func (r *applier) recordChange(n *node, policies []string, path string) {
	r.changes = append(r.changes, appliedChange{n, policies, path})
}

// recordOverwrite records a change, and warns of it unless the author had left the field
// open.
func (r *applier) recordOverwrite(n *node, w leafValue, path string, was, is any) {
	r.recordChange(n, w.policies, path)
	if !n.open {
		r.warnings = append(r.warnings, Warning{w.policies, path, was, is})
	}
}

// recordOpen remembers whether the author had left a part open when it was first looked
// at: what policies write can make it look otherwise.
func (n *node) recordOpen(open bool) {
	if !n.openKnown {
		n.openKnown, n.open = true, open
	}
}

// isOpen tells whether the author left a node's part open.
func (r *applier) isOpen(n *node, at defaulted.Location, v any) bool {
	switch n.kind {
	case fieldNode:
		return r.cluster.IsOpen(n.field, at, v)
	case entryNode:
		return v == nil || r.cluster.IsDefaulted(n.field, at.AtEntry(n.step), v)
	}
	return v == nil || r.newElementDepth > 0
}

// isAuthored tells whether a node's part has anything that its author wrote.
func (r *applier) isAuthored(n *node, at defaulted.Location, v any) bool {
	if n.kind == elementNode {
		return r.cluster.IsAuthoredElement(n.field, at, v)
	}
	return r.cluster.IsAuthored(n.field, at, v)
}

// applyNode does what the plan wants of a part in the present phase. It returns the
// part as it shall be, nil if it shall go, and whether that is a change; what it
// was given stays as it is.
func (r *applier) applyNode(n *node, have any, at defaulted.Location) (any, bool) {
	switch {
	case n.phases&r.phase == 0:
		return have, false
	case n.isLeaf():
		return r.applyLeaf(n, have, at)
	case n.isRemoved():
		return r.applyNull(n, have, at)
	case n.typ.Kind == schema.KindList:
		return r.applyList(n, have, at)
	}
	object, ok := have.(map[string]any)
	if !ok && have != nil {
		r.addInvalidObject(n.path(), "must be "+n.typ.Kind.String()+", not "+describeKind(have))
		return have, false
	}
	return r.applyChildren(n, object, at)
}

// applyChildren visits the fields of a struct or the entries of a dict.
func (r *applier) applyChildren(n *node, before map[string]any, at defaulted.Location) (any, bool) {
	if n.typ.Kind == schema.KindStruct {
		at = at.AtStruct(before)
	}
	after, changed := before, false
	for _, kid := range n.children {
		if kid.phases&r.phase == 0 {
			continue
		}
		if kid.kind == unionNode {
			after = r.applyUnion(kid, before, after, at)
			changed = changed || !schema.IsSameInstance(before, after)
			continue
		}
		v, different := r.applyNode(kid, before[kid.step], at)
		if !different {
			continue
		}
		if !changed {
			after, changed = cloneMap(before), true
		}
		if v == nil {
			delete(after, kid.step)
		} else {
			after[kid.step] = v
		}
	}
	if changed {
		r.applyCoupled(n, before, after)
	}
	return after, changed
}

// applyCoupled moves what goes together with what the policies changed.
func (r *applier) applyCoupled(n *node, before, after map[string]any) {
	for _, m := range updateCoupledFields(n.typ, before, after, n) {
		cause := n.child(m.cause, fieldNode)
		if entry := cause.child(m.entry, entryNode); entry != nil {
			cause = entry
		}
		r.recordChange(cause, cause.policiesIn(r.phase), n.path()+m.path)
	}
}

// policiesIn are who wants something of n itself in the phase.
func (n *node) policiesIn(p phase) []string {
	switch {
	case p == overridePhase && len(n.overrides) > 0:
		return n.overrides[0].policies
	case p == defaultPhase && len(n.defaults) > 0:
		return n.defaults[0].policies
	}
	return nil
}

// applyNull does an override with null. What the API server would fill in again is as
// good as removed.
func (r *applier) applyNull(n *node, have any, at defaulted.Location) (any, bool) {
	if r.phase != overridePhase {
		return have, false
	}
	authored := have != nil && r.isAuthored(n, at, have)
	if n.recordOpen(!authored); !authored {
		return have, false
	}
	r.recordOverwrite(n, n.overrides[0], n.path(), have, nil)
	return nil, true
}

// applyLeaf writes a value as a whole.
func (r *applier) applyLeaf(n *node, have any, at defaulted.Location) (any, bool) {
	if r.phase == appendPhase {
		return r.applyAppends(n, have, at)
	}
	open := r.isOpen(n, at, have)
	n.recordOpen(open)
	w, ok := r.desiredNow(n, open)
	if !ok {
		return have, false
	}
	wanted := w.value
	if wanted == nil && open {
		return have, false
	}
	if hasStandardTolerations(n.field) {
		wanted = keepStandardTolerations(wanted, have)
	}
	if r.isSatisfied(n, have, wanted, at) {
		return have, false
	}
	r.recordOverwrite(n, w, n.path(), have, wanted)
	return wanted, true
}

// desiredNow returns what the present phase wants of a leaf, and false if nothing.
func (r *applier) desiredNow(n *node, open bool) (leafValue, bool) {
	switch {
	case r.phase == overridePhase && len(n.overrides) > 0:
		return n.overrides[0], !n.overrides[0].implied
	case r.phase == defaultPhase && len(n.overrides) == 0 && len(n.defaults) > 0:
		return n.defaults[0], open && !n.suppressed && !n.defaults[0].implied
	}
	return leafValue{}, false
}

// isSatisfied tells whether a leaf is as wanted. What is absent is not: what the API
// server would fill in may be another value once all is written.
func (r *applier) isSatisfied(n *node, have, wanted any, at defaulted.Location) bool {
	switch {
	case n.kind != fieldNode:
		return have != nil && wanted != nil && r.compare.equal(n.typ, have, wanted, at)
	case defaulted.IsAbsent(n.field, have):
		return defaulted.IsAbsent(n.field, wanted)
	}
	return r.compare.equalFields(n.field, n.step, at.Parent, at.Parent, have, wanted, at)
}
