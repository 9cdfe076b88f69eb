// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Reasons of the condition Planned.
const (
	// ReasonPlanned: every pod finds its instance, or will.
	ReasonPlanned = "Planned"
	// ReasonCutting: nodes are being changed.
	ReasonCutting = "Cutting"
	// ReasonNoRoom: a pod waits for room that somebody has.
	ReasonNoRoom = "NoRoom"
	// ReasonNoSuchProfile: a pod asks for a profile that no board has.
	ReasonNoSuchProfile = "NoSuchProfile"
	// ReasonResetRequired: there would be room on a GPU that is not in MIG mode.
	ReasonResetRequired = "ResetRequired"
	// ReasonMissesOther: a pod's scheduler misses something else.
	ReasonMissesOther = "MissesOther"
	// ReasonLayoutImpossible: a GPU cannot be cut as the pool's layout says, or not yet.
	ReasonLayoutImpossible = "LayoutImpossible"
	// ReasonNodesUnfit: nothing can be cut on a node by what its labels say.
	ReasonNodesUnfit = "NodesUnfit"
	// ReasonAgentFailed: an agent could not do what was asked, or does not answer.
	ReasonAgentFailed = "AgentFailed"
)

// told is how many pods or GPUs a message names before it only counts.
const told = 4

// preemptible tells of a pod whether it may be ended for others.
type preemptible func(v1alpha1.PodReference) bool

// conditions are the pools' conditions after a decision, in their order. Nothing is
// preempted here: it is only said what would help.
func (d *decision) conditions(may preemptible) []metav1.Condition {
	all := make([]metav1.Condition, len(d.draft.pools))
	for i := range all {
		all[i] = d.draft.condition(i, may)
		all[i].Type = v1alpha1.ConditionPlanned
	}
	return all
}

func (d *draft) condition(pool int, may preemptible) metav1.Condition {
	if impossible := d.impossible[pool]; len(impossible) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonLayoutImpossible, Message: few(impossible)}
	}
	var waiting []string
	reason := ""
	for _, i := range d.unmet {
		w := &d.wants[i]
		if d.home(w) != pool {
			continue
		}
		if len(waiting) == told {
			waiting = append(waiting, "") // is only counted
			continue
		} else if len(waiting) > told {
			waiting = append(waiting, "")
			continue
		}
		r, hint := d.hint(w, pool, may)
		if reason == "" {
			reason = r
		}
		waiting = append(waiting, fmt.Sprintf("%s asks for %s: %s", w.key(), w.words(), hint))
	}
	if len(waiting) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: few(waiting)}
	}
	if unfit := d.unfit(pool); len(unfit) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonNodesUnfit, Message: few(unfit)}
	}
	if faults := d.faults(pool); len(faults) > 0 {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonAgentFailed, Message: few(faults)}
	}
	return d.fine(pool)
}

// fine is the condition of a pool in which nobody waits in vain.
func (d *draft) fine(pool int) metav1.Condition {
	var changing []string
	for at := range d.nodes {
		if w := &d.work[at]; d.nodes[at].pool == pool && (d.nodes[at].taint != nil || w.stage == open && (w.changed || w.draining)) {
			text := d.nodes[at].name
			if w.draining && !w.changed {
				text += " (once the pods have ended that have a GPU which is to be reset)"
			}
			changing = append(changing, text)
		}
	}
	c := metav1.Condition{Status: metav1.ConditionTrue, Reason: ReasonPlanned, Message: "no pod waits for an instance that is not there"}
	if d.pools[pool].static() {
		c.Message = "the GPUs are cut as spec.mig.layout says"
	}
	if len(changing) > 0 {
		c.Reason, c.Message = ReasonCutting, "GPUs are cut anew on "+strings.Join(changing[:min(len(changing), told)], ", ")
		if more := len(changing) - told; more > 0 {
			c.Message += fmt.Sprintf(" and %d more nodes", more)
		}
	}
	return c
}

// home is the pool whose condition speaks of a want: the first that is planned.
func (d *draft) home(w *want) int {
	for _, pool := range w.order {
		if !d.pools[pool].static() {
			return pool
		}
	}
	return -1
}

// unfit are the nodes on which nothing can be cut.
func (d *draft) unfit(pool int) (all []string) {
	for at := range d.nodes {
		if n := &d.nodes[at]; n.pool == pool && n.unfit != "" {
			all = append(all, fmt.Sprintf("node %s: %s", n.name, n.unfit))
		}
	}
	return all
}

// faults are what agents could not do or do not answer.
func (d *draft) faults(pool int) (faults []string) {
	for at := range d.nodes {
		n := &d.nodes[at]
		if n.pool != pool || n.machine == nil {
			continue
		}
		switch m := n.machine; {
		case n.taint != nil:
			late := n.taint.since.Add(fresh + agentTime + publishTime)
			if d.work[at].stage == finishing && m.caughtUp && m.exceeded(n.published) && !d.now.Before(late) {
				faults = append(faults, fmt.Sprintf("node %s takes no pods, for its allocatable still has instances that are gone; restart the device plugin there", n.name))
			}
		case m.failed && m.differs():
			faults = append(faults, fmt.Sprintf("node %s could not be cut as asked: %s", n.name, m.message))
		case !m.caughtUp && len(m.spec) > 0:
			faults = append(faults, fmt.Sprintf("the agent of node %s has not carried out the last layout; is it running there?", n.name))
		}
	}
	return faults
}

// words are what a want asks for, for people.
func (w *want) words() string {
	texts := make([]string, 0, len(w.asks))
	for _, a := range w.asks {
		text := string(a.profile)
		if a.count > 1 {
			text = fmt.Sprintf("%d of %s", a.count, a.profile)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " and ")
}

// few are the first of many.
func few(texts []string) string {
	if more := len(texts) - told; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(texts[:told], "; "), more)
	}
	return strings.Join(texts, "; ")
}
