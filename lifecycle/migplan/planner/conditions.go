// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// Reasons of the condition Planned.
const (
	// ReasonPlanned: every pod finds its instance, or will.
	ReasonPlanned = "Planned"
	// ReasonRepartitioning: nodes are being changed.
	ReasonRepartitioning = "Cutting"
	// ReasonInsufficientCapacity: a pod waits for room that somebody has.
	ReasonInsufficientCapacity = "NoRoom"
	// ReasonUnknownProfile: a pod asks for a profile that no board has.
	ReasonUnknownProfile = "NoSuchProfile"
	// ReasonResetRequired: there would be room on a GPU that is not in MIG mode.
	ReasonResetRequired = "ResetRequired"
	// ReasonOtherResourceMissing: a pod's scheduler misses something else.
	ReasonOtherResourceMissing = "MissesOther"
	// ReasonLayoutImpossible: a GPU cannot be cut as the pool's layout says, or not yet.
	ReasonLayoutImpossible = "LayoutImpossible"
	// ReasonNodesUnsuitable: nothing can be cut on a node by what its labels say.
	ReasonNodesUnsuitable = "NodesUnfit"
	// ReasonAgentFailed: an agent could not do what was asked, or does not answer.
	ReasonAgentFailed = "AgentFailed"
)

// maxListed is how many pods or GPUs a message names before it only counts.
const maxListed = 4

// preemptibleFunc tells of a pod whether it may be ended for others.
type preemptibleFunc func(v1alpha1.PodReference) bool

// conditions are the pools' conditions after a decision, in their order. Nothing is
// preempted here: it is only said what would help.
func (d *decision) conditions(may preemptibleFunc) []metav1.Condition {
	all := make([]metav1.Condition, len(d.draft.pools))
	for i := range all {
		all[i] = d.draft.poolCondition(i, may)
		all[i].Type = v1alpha1.ConditionPlanned
	}
	return all
}

func (d *draft) poolCondition(pool int, may preemptibleFunc) metav1.Condition {
	if impossible := d.impossibleLayouts[pool]; len(impossible) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonLayoutImpossible, Message: joinLimited(impossible)}
	}
	var waiting []string
	reason := ""
	for _, i := range d.unmet {
		w := &d.requests[i]
		if d.reportingPool(w) != pool {
			continue
		}
		if len(waiting) == maxListed {
			waiting = append(waiting, "") // is only counted
			continue
		} else if len(waiting) > maxListed {
			waiting = append(waiting, "")
			continue
		}
		r, hint := d.explainUnmet(w, pool, may)
		if reason == "" {
			reason = r
		}
		waiting = append(waiting, fmt.Sprintf("%s asks for %s: %s", w.displayName(), w.describe(), hint))
	}
	if len(waiting) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: joinLimited(waiting)}
	}
	if unfit := d.unsuitableNodes(pool); len(unfit) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonNodesUnsuitable, Message: joinLimited(unfit)}
	}
	if faults := d.agentFailures(pool); len(faults) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonAgentFailed, Message: joinLimited(faults)}
	}
	return d.plannedCondition(pool)
}

// plannedCondition is the condition of a pool in which nobody waits in vain.
func (d *draft) plannedCondition(pool int) metav1.Condition {
	var changing []string
	for at := range d.nodes {
		if w := &d.nodeDrafts[at]; d.nodes[at].pool == pool && (d.nodes[at].taint != nil || w.stage == stageOpen && (w.changed || w.draining)) {
			text := d.nodes[at].name
			if w.draining && !w.changed {
				text += " (once the pods have ended that have a GPU which is to be reset)"
			}
			changing = append(changing, text)
		}
	}
	c := metav1.Condition{Status: metav1.ConditionTrue, Reason: ReasonPlanned, Message: "no pod waits for an instance that is not there"}
	if d.pools[pool].isStatic() {
		c.Message = "the GPUs are cut as spec.mig.layout says"
	}
	if len(changing) > 0 {
		c.Reason, c.Message = ReasonRepartitioning, "GPUs are cut anew on "+strings.Join(changing[:min(len(changing), maxListed)], ", ")
		if more := len(changing) - maxListed; more > 0 {
			c.Message += fmt.Sprintf(" and %d more nodes", more)
		}
	}
	return c
}

// reportingPool is the pool whose condition speaks of a want: the first that is planned.
func (d *draft) reportingPool(w *podRequest) int {
	for _, pool := range w.poolOrder {
		if !d.pools[pool].isStatic() {
			return pool
		}
	}
	return -1
}

// unsuitableNodes are the nodes on which nothing can be cut.
func (d *draft) unsuitableNodes(pool int) (all []string) {
	for at := range d.nodes {
		if n := &d.nodes[at]; n.pool == pool && n.unsuitableReason != "" {
			all = append(all, fmt.Sprintf("node %s: %s", n.name, n.unsuitableReason))
		}
	}
	return all
}

// agentFailures are what agents could not do or do not answer.
func (d *draft) agentFailures(pool int) (faults []string) {
	for at := range d.nodes {
		n := &d.nodes[at]
		if n.pool != pool || n.observed == nil {
			continue
		}
		switch m := n.observed; {
		case n.taint != nil:
			late := n.taint.since.Add(taintMaxAge + agentTimeout + allocatableTimeout)
			if d.nodeDrafts[at].stage == stageFinishing && m.specObserved && m.isExceededBy(n.allocatable) && !d.now.Before(late) {
				faults = append(faults, fmt.Sprintf("node %s takes no pods, for its allocatable still has instances that are gone; restart the device plugin there", n.name))
			}
		case m.failed && m.differsFromSpec():
			faults = append(faults, fmt.Sprintf("node %s could not be cut as asked: %s", n.name, m.message))
		case !m.specObserved && len(m.spec) > 0:
			faults = append(faults, fmt.Sprintf("the agent of node %s has not carried out the last layout; is it running there?", n.name))
		}
	}
	return faults
}

// describe are what a want asks for, for people.
func (w *podRequest) describe() string {
	texts := make([]string, 0, len(w.instanceRequests))
	for _, a := range w.instanceRequests {
		text := string(a.profile)
		if a.count > 1 {
			text = fmt.Sprintf("%d of %s", a.count, a.profile)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " and ")
}

// joinLimited are the first of many.
func joinLimited(texts []string) string {
	if more := len(texts) - maxListed; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(texts[:maxListed], "; "), more)
	}
	return strings.Join(texts, "; ")
}

// explainUnmet is why there is no room for a want in a pool, and what would help.
func (d *draft) explainUnmet(w *podRequest, pool int, may preemptibleFunc) (reason, hint string) {
	if w.missesOtherResource {
		return ReasonOtherResourceMissing, "its scheduler misses something else; see the pod's events"
	}
	for _, a := range w.instanceRequests {
		if names, had := d.offersProfile(w, pool, a.profile); !had {
			if len(names) == 0 {
				return ReasonInsufficientCapacity, "no agent of a node where it may be has reported GPUs that can be cut"
			}
			return ReasonUnknownProfile, fmt.Sprintf("no board of this pool has profile %s; they have %s", a.profile, strings.Join(names, ", "))
		}
	}
	for at := range d.nodes {
		if d.nodes[at].pool != pool || !w.feasible[at] {
			continue
		}
		for _, c := range d.gpuDraftsOf(at) {
			if g := c.gpu; c.eligibility == notEligible && g.model != nil && !g.migEnabled && g.wholeHolders == 0 && g.model.resolveProfile(w.instanceRequests[0].profile) != nil {
				return ReasonResetRequired, fmt.Sprintf("GPU %d of node %s %s", g.index, d.nodes[at].name, d.ineligibleReason(&c))
			}
		}
	}
	if node, pods, ok := d.findPreemption(w, pool, may); ok {
		return ReasonInsufficientCapacity, fmt.Sprintf("it fits on node %s after preempting %d preemptible pods (%s)", node, len(pods), joinLimited(pods))
	}
	for at := range d.nodes {
		if d.nodes[at].pool == pool && w.feasible[at] && d.nodeDrafts[at].stage == stageClosed && d.nodeDrafts[at].closedReason != "" {
			return ReasonInsufficientCapacity, fmt.Sprintf("there is no room now; of node %s: %s", d.nodes[at].name, d.nodeDrafts[at].closedReason)
		}
	}
	return ReasonInsufficientCapacity, "every place for it is in use by pods that are not preempted; it fits when enough of them have ended"
}

// offersProfile tells whether a board in the pool, where a want may be, has a profile, and
// which there are.
func (d *draft) offersProfile(w *podRequest, pool int, name v1alpha1.MIGProfile) (names []string, had bool) {
	for at := range d.nodes {
		if d.nodes[at].pool != pool || !w.feasible[at] {
			continue
		}
		for _, c := range d.gpuDraftsOf(at) {
			if c.gpu.model == nil {
				continue
			}
			if c.gpu.model.resolveProfile(name) != nil {
				return nil, true
			}
			for known := range c.gpu.model.profileByName {
				if !slices.Contains(names, string(known)) {
					names = append(names, string(known))
				}
			}
		}
	}
	slices.Sort(names)
	return names, false
}

// findPreemption is a node where one more instance fits once these pods have ended.
func (d *draft) findPreemption(w *podRequest, pool int, may preemptibleFunc) (node string, pods []string, ok bool) {
	if len(w.instanceRequests) > 1 || w.instanceRequests[0].count > 1 || may == nil {
		return "", nil, false
	}
	var cells []*gpuDraft
	var gpus []mig.GPU
	for at := range d.nodes {
		if d.nodes[at].pool != pool || !w.feasible[at] || d.nodeDrafts[at].stage == stageClosed && d.nodes[at].observed == nil {
			continue
		}
		for c := d.nodeDrafts[at].first; c < d.nodeDrafts[at].last && len(cells) < maxComparedGPUs; c++ {
			it := &d.gpuDrafts[c]
			if it.eligibility != eligibleInMIGMode || it.gpu.model.resolveProfile(w.instanceRequests[0].profile) == nil {
				continue
			}
			board := it.migGPU()
			for k := range board.Instances {
				if pod := it.instances[k].pod; pod != nil && may(*pod) {
					board.Instances[k].Use = mig.Preemptible
				}
			}
			cells, gpus = append(cells, it), append(gpus, board)
		}
	}
	step, victims, ok := mig.Preempt(gpus, w.instanceRequests[0].profile)
	if !ok || len(victims) == 0 {
		return "", nil, false
	}
	c := cells[step.GPU]
	for _, v := range victims {
		pods = append(pods, c.instances[v].pod.Namespace+"/"+c.instances[v].pod.Name)
	}
	return d.nodes[c.node].name, pods, true
}
