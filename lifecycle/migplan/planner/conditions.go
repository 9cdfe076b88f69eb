// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// Reasons of the condition Planned.
const (
	// ReasonPlanned: every pending pod has an instance, or one is being created.
	ReasonPlanned = "Planned"
	// ReasonRepartitioning: nodes are being repartitioned.
	ReasonRepartitioning = "Repartitioning"
	// ReasonInsufficientCapacity: a pod waits for slices that other pods hold.
	ReasonInsufficientCapacity = "InsufficientCapacity"
	// ReasonUnknownProfile: a pod requests a profile that no GPU model of the pool has.
	ReasonUnknownProfile = "UnknownProfile"
	// ReasonResetRequired: a GPU that is not in MIG mode would have room.
	ReasonResetRequired = "ResetRequired"
	// ReasonChangeLimitReached: a node was repartitioned as often as the pool allows.
	ReasonChangeLimitReached = "ChangeLimitReached"
	// ReasonOtherResourceMissing: no node with room for the instance has the pod's other resources.
	ReasonOtherResourceMissing = "OtherResourceMissing"
	// ReasonLayoutImpossible: the pool's layout cannot be applied to a GPU, or not yet.
	ReasonLayoutImpossible = "LayoutImpossible"
	// ReasonNodesUnsuitable: the labels of a node rule out repartitioning.
	ReasonNodesUnsuitable = "NodesUnsuitable"
	// ReasonAgentFailed: an agent could not apply a layout, or does not report.
	ReasonAgentFailed = "AgentFailed"
)

// maxListed bounds the pods or GPUs that a message names; it counts the others.
const maxListed = 4

// preemptibleFunc reports whether a pod may be preempted.
type preemptibleFunc func(v1alpha1.PodReference) bool

// conditions returns the condition Planned of each pool. It names pods whose preemption would
// help and preempts none.
func (d *decision) conditions(isPreemptible preemptibleFunc) []metav1.Condition {
	all := make([]metav1.Condition, len(d.draft.pools))
	for i := range all {
		all[i] = d.draft.poolCondition(i, isPreemptible)
		all[i].Type = v1alpha1.ConditionPlanned
	}
	return all
}

func (d *draft) poolCondition(pool int, isPreemptible preemptibleFunc) metav1.Condition {
	if impossible := d.impossibleLayouts[pool]; len(impossible) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonLayoutImpossible, Message: joinLimited(impossible)}
	}
	var messages []string
	reason := ""
	for _, i := range d.unmet {
		w := &d.requests[i]
		if d.reportingPool(w) != pool {
			continue
		}
		if len(messages) >= maxListed {
			messages = append(messages, "") // only counted
			continue
		}
		r, hint := d.explainUnmet(w, pool, isPreemptible)
		if reason == "" {
			reason = r
		}
		messages = append(messages, fmt.Sprintf("%s requests %s: %s", w.displayName(), w.describe(), hint))
	}
	if len(messages) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: joinLimited(messages)}
	}
	if unsuitable := d.unsuitableNodes(pool); len(unsuitable) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonNodesUnsuitable, Message: joinLimited(unsuitable)}
	}
	if failures := d.agentFailures(pool); len(failures) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonAgentFailed, Message: joinLimited(failures)}
	}
	return d.plannedCondition(pool)
}

// plannedCondition returns the condition of a pool without unmet requests.
func (d *draft) plannedCondition(pool int) metav1.Condition {
	var changing []string
	for at := range d.nodes {
		if w := &d.nodeDrafts[at]; d.nodes[at].pool == pool && (d.nodes[at].taint != nil || w.stage == stageOpen && (w.changed || w.draining)) {
			text := d.nodes[at].name
			if w.draining && !w.changed {
				text += " (after the pods have ended that hold a GPU to be reset)"
			}
			if d.nodes[at].clientsPaused {
				text += " (its GPU clients are paused)"
			}
			changing = append(changing, text)
		}
	}
	c := metav1.Condition{Status: metav1.ConditionTrue, Reason: ReasonPlanned, Message: "no pending pod lacks an instance"}
	if d.pools[pool].isStatic() {
		c.Message = "the GPUs have the layout of spec.mig.layout"
	}
	if len(changing) > 0 {
		c.Reason, c.Message = ReasonRepartitioning, "repartitioning GPUs on "+strings.Join(changing[:min(len(changing), maxListed)], ", ")
		if more := len(changing) - maxListed; more > 0 {
			c.Message += fmt.Sprintf(" and %d more nodes", more)
		}
	}
	return c
}

// reportingPool returns the pool whose condition reports a request: the first planned from demand.
func (d *draft) reportingPool(w *podRequest) int {
	for _, pool := range w.poolOrder {
		if !d.pools[pool].isStatic() {
			return pool
		}
	}
	return -1
}

// unsuitableNodes lists the nodes whose labels rule out repartitioning.
func (d *draft) unsuitableNodes(pool int) (all []string) {
	for at := range d.nodes {
		if n := &d.nodes[at]; n.pool == pool && n.unsuitableReason != "" {
			all = append(all, fmt.Sprintf("node %s: %s", n.name, n.unsuitableReason))
		}
	}
	return all
}

// agentFailures lists the nodes whose agent or device plugin failed or does not report.
func (d *draft) agentFailures(pool int) (failures []string) {
	for at := range d.nodes {
		n := &d.nodes[at]
		if n.pool != pool || n.observed == nil {
			continue
		}
		switch m := n.observed; {
		case n.taint != nil:
			if d.nodeDrafts[at].stage == stageFinishing && m.nodesMissing {
				failures = append(failures, fmt.Sprintf("node %s accepts no pods: %s", n.name, m.message))
				continue
			}
			late := n.taint.since.Add(taintMaxAge + agentTimeout + allocatableTimeout)
			if d.nodeDrafts[at].stage == stageFinishing && m.specObserved && m.isExceededBy(n.allocatable) && !d.now.Before(late) {
				failures = append(failures, fmt.Sprintf(
					"node %s accepts no pods, since its allocatable still has destroyed instances; restart its device plugin", n.name))
			}
		case m.failed && m.differsFromSpec():
			failures = append(failures, fmt.Sprintf("node %s could not be repartitioned: %s", n.name, m.message))
		case !m.specObserved && len(m.spec) > 0:
			failures = append(failures, fmt.Sprintf("the agent of node %s has not applied the last layout; check that it runs", n.name))
		}
	}
	return failures
}

// describe lists the requested instances for messages.
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

// joinLimited joins the first maxListed texts and counts the others.
func joinLimited(texts []string) string {
	if more := len(texts) - maxListed; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(texts[:maxListed], "; "), more)
	}
	return strings.Join(texts, "; ")
}

// explainUnmet returns why a pool has no room for a request, and what would help.
func (d *draft) explainUnmet(w *podRequest, pool int, isPreemptible preemptibleFunc) (reason, hint string) {
	if missing, node := d.missingResource(w, pool); missing != "" {
		return ReasonOtherResourceMissing, fmt.Sprintf("no node has enough %s for it, such as node %s", missing, node)
	}
	for _, a := range w.instanceRequests {
		if names, offered := d.offersProfile(w, pool, a.profile); !offered {
			if len(names) == 0 {
				return ReasonInsufficientCapacity, "no agent of a feasible node has reported GPUs with MIG"
			}
			return ReasonUnknownProfile, fmt.Sprintf(
				"no GPU model of this pool has profile %s; available are %s", a.profile, strings.Join(names, ", "),
			)
		}
	}
	for at := range d.nodes {
		if d.nodes[at].pool != pool || !w.feasible[at] {
			continue
		}
		for _, c := range d.gpuDraftsOf(at) {
			g := c.gpu
			if c.eligibility != notEligible || g.model == nil || g.model.resolveProfile(w.instanceRequests[0].profile) == nil {
				continue
			}
			why := fmt.Sprintf("GPU %d of node %s %s", g.index, d.nodes[at].name, d.ineligibleReason(&c))
			if d.previousState.gpuBackoff[g.uuid].until.After(d.now) {
				return ReasonAgentFailed, why
			}
			if !g.migEnabled && g.wholeHolders == 0 {
				return ReasonResetRequired, why
			}
		}
	}
	if node, pods, ok := d.findPreemption(w, pool, isPreemptible); ok {
		return ReasonInsufficientCapacity, fmt.Sprintf(
			"it fits on node %s after preempting %d preemptible pods (%s)", node, len(pods), joinLimited(pods),
		)
	}
	for at := range d.nodes {
		if d.nodes[at].pool == pool && w.feasible[at] && d.nodeDrafts[at].stage == stageClosed && d.nodeDrafts[at].closedReason != "" {
			if closed := d.nodeDrafts[at].closedReason; closed == d.changeLimitReason(&d.nodes[at]) {
				return ReasonChangeLimitReached, fmt.Sprintf("node %s: %s", d.nodes[at].name, closed)
			}
			return ReasonInsufficientCapacity, fmt.Sprintf("there is no room now; node %s: %s", d.nodes[at].name, d.nodeDrafts[at].closedReason)
		}
	}
	return ReasonInsufficientCapacity, "pods that are not preempted hold all suitable slices; it fits after enough of them have ended"
}

// missingResource returns another resource that is missing on every feasible node of a pool, and
// one of the nodes; empty if a node has all.
func (d *draft) missingResource(w *podRequest, pool int) (missing corev1.ResourceName, name string) {
	for at := range d.nodes {
		if d.nodes[at].pool != pool || !w.feasible[at] {
			continue
		}
		resource := w.resources.missing(&d.nodes[at].free)
		if resource == "" {
			return "", ""
		}
		missing, name = resource, d.nodes[at].name
	}
	return missing, name
}

// offersProfile reports whether a GPU of a feasible node in the pool has a profile; if not it
// returns the available ones.
func (d *draft) offersProfile(w *podRequest, pool int, name v1alpha1.MIGProfile) (names []string, offered bool) {
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

// findPreemption returns a node where an instance fits after these pods have ended.
func (d *draft) findPreemption(w *podRequest, pool int, isPreemptible preemptibleFunc) (node string, pods []string, ok bool) {
	if len(w.instanceRequests) > 1 || w.instanceRequests[0].count > 1 || isPreemptible == nil {
		return "", nil, false
	}
	var drafts []*gpuDraft
	var gpus []mig.GPU
	for at := range d.nodes {
		if d.nodes[at].pool != pool || !w.feasible[at] || d.nodeDrafts[at].stage == stageClosed && d.nodes[at].observed == nil {
			continue
		}
		for c := d.nodeDrafts[at].first; c < d.nodeDrafts[at].last && len(drafts) < maxComparedGPUs; c++ {
			it := &d.gpuDrafts[c]
			if it.eligibility != eligibleInMIGMode || it.gpu.model.resolveProfile(w.instanceRequests[0].profile) == nil {
				continue
			}
			candidate := it.migGPU()
			for k := range candidate.Instances {
				if pod := it.instances[k].pod; pod != nil && isPreemptible(*pod) {
					candidate.Instances[k].Use = mig.Preemptible
				}
			}
			drafts, gpus = append(drafts, it), append(gpus, candidate)
		}
	}
	step, victims, ok := mig.PlanPreemption(gpus, w.instanceRequests[0].profile)
	if !ok || len(victims) == 0 {
		return "", nil, false
	}
	c := drafts[step.GPU]
	for _, v := range victims {
		pods = append(pods, c.instances[v].pod.Namespace+"/"+c.instances[v].pod.Name)
	}
	return d.nodes[c.node].name, pods, true
}
