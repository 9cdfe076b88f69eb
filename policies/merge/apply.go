// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"

	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/filled"
)

// Apply applies all intents to a pod, a pod template (metadata and spec) or a Job,
// as if at once. The cluster is what its API server fills in that others do not; the
// zero value will do for most.
//
// Neither the object nor the intents are changed; the result shares memory with
// both. The error is of type [*ObjectError], or [*ConflictError], or one or
// several joined [*IntentError], and does not depend on the intents' order.
func Apply(object map[string]any, intents []intent.Intent, cluster filled.Cluster) (Result, error) {
	if err := withinLimits(object, intents); err != nil {
		return Result{}, err
	}
	plan, err := build(object, intents)
	if err != nil {
		return Result{}, err
	}
	r := &run{plan: plan, cluster: cluster, compare: comparison{cluster}, object: object}
	r.all()
	if err := r.err(); err != nil {
		return Result{}, err
	}
	r.settle(object)
	slices.SortFunc(r.warnings, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), slices.Compare(a.Policies, b.Policies))
	})
	return Result{Object: r.object, Warnings: r.warnings, Changes: byPolicy(r.changes), original: object}, nil
}

// run is one application of a plan.
type run struct {
	faults
	plan    *plan
	cluster filled.Cluster
	compare comparison
	// object is as it is when a phase begins: who wrote what is told from it.
	object map[string]any
	phase  phase
	// making counts the elements being made that what is visited is in.
	making   int
	warnings []Warning
	changes  []change
	// parted are defaults of which removals took out a part.
	parted []*node
	// taken is who took out which element or field, by path.
	taken map[string][]string
}

// rounds bounds how often a plan is applied. One or two are usual: what a policy
// writes may open to a default what the author had left to the API server.
const rounds = 20

// all applies the plan until nothing changes any more.
func (r *run) all() {
	before := atFirst
	for range rounds {
		changed := r.takeOut(before)
		if r.do(overriding) {
			r.takeOut(afterOverrides)
			changed = true
		}
		for range rounds {
			if !r.do(filling) {
				break
			}
			r.takeOut(afterDefaults)
			changed = true
		}
		if r.do(appending) {
			changed = true
		}
		if !changed || r.err() != nil {
			return
		}
		before = afterAppends
	}
	last := r.changes[len(r.changes)-1]
	for _, policy := range last.policies {
		r.intent(policy, last.path, "never comes to an end: it is changed each time the policies are applied")
	}
}

// do applies the plan's part for one phase, and tells whether something changed.
func (r *run) do(p phase) bool {
	if r.plan.root.has&p == 0 || r.err() != nil {
		return false
	}
	r.phase = p
	out, changed := r.visit(r.plan.root, r.object, filled.Place{Object: r.object})
	if changed {
		r.object, _ = out.(map[string]any)
	}
	return changed
}

// note records that the policies changed a path.
func (r *run) note(n *node, policies []string, path string) {
	r.changes = append(r.changes, change{n, policies, path})
}

// changed records a change, and warns of it unless the author had left the field
// open.
func (r *run) changed(n *node, w want, path string, was, is any) {
	r.note(n, w.policies, path)
	if !n.left {
		r.warnings = append(r.warnings, Warning{w.policies, path, was, is})
	}
}

// judge remembers whether the author had left a part open when it was first looked
// at: what policies write can make it look otherwise.
func (n *node) judge(open bool) {
	if !n.judged {
		n.judged, n.left = true, open
	}
}

// open tells whether the author left a node's part open.
func (r *run) open(n *node, at filled.Place, v any) bool {
	switch n.form {
	case isField:
		return r.cluster.Open(n.field, at, v)
	case isEntry:
		return v == nil || r.cluster.Filled(n.field, at.Of(n.step), v)
	}
	return v == nil || r.making > 0
}

// authored tells whether a node's part has anything that its author wrote.
func (r *run) authored(n *node, at filled.Place, v any) bool {
	if n.form == isElement {
		return r.cluster.AuthoredElement(n.field, at, v)
	}
	return r.cluster.Authored(n.field, at, v)
}
