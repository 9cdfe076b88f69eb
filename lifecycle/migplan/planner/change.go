// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"time"
)

// determineStage tells where a node is.
func (d *draft) determineStage(at int) {
	n, w := &d.nodes[at], &d.nodeDrafts[at]
	m := n.observed
	switch {
	case n.taint == nil:
		w.stage = stageOpen
		if w.closedReason = d.closedReason(n); w.closedReason != "" {
			w.stage = stageClosed
		}
	case m == nil || n.taint.generation != m.generation:
		w.stage = stageFinishing
	case d.agentUnavailableReason(m) != "" || !m.specObserved:
		// Nothing is written for an agent that is not there.
		w.stage = stageFinishing
	default:
		w.stage = stageSettling
		if until, settled := n.settledAt(d.now); !settled {
			d.requeueAt(until)
		} else if n.podsListed {
			w.stage = stageReady
		}
	}
}

// closedReason is why nothing can be changed on a node that is not tainted; empty where it can.
func (d *draft) closedReason(n *node) string {
	if n.observed == nil {
		return "it has no GPUNode"
	}
	if n.unsuitableReason != "" {
		return n.unsuitableReason
	}
	if why := d.agentUnavailableReason(n.observed); why != "" {
		return why
	}
	if !n.observed.specObserved {
		return "its agent has not carried out the last layout yet"
	}
	if until := d.previousState.nodeBackoff[n.name].until; until.After(d.now) {
		d.requeueAt(until)
		return "it was changed a moment ago"
	}
	return ""
}

// agentUnavailableReason is why an agent cannot be asked to do anything.
func (d *draft) agentUnavailableReason(m *observedNode) string {
	if m.unusableReason != "" {
		return m.unusableReason
	}
	if !m.sampledAt.IsZero() {
		if until := m.sampledAt.Add(agentSilenceTimeout); !until.After(d.now) {
			return fmt.Sprintf("its agent has said nothing for %s", agentSilenceTimeout)
		}
	}
	return ""
}

// settledAt is from when a tainted node's pods can be counted, and whether that has come:
// no scheduler binds one there any more.
func (n *node) settledAt(now time.Time) (until time.Time, settled bool) {
	until = n.taint.since.Add(bindSettleTime)
	for i := range n.boundPods {
		// One that is bound in the future is of another clock.
		if at := n.boundPods[i].bound; at.Before(now.Add(bindSettleTime)) && at.Add(bindSettleTime).After(until) {
			until = at.Add(bindSettleTime)
		}
	}
	return until, !until.After(now)
}

// prepareChange goes on with a node that is tainted and whose spec is not written.
func (d *draft) prepareChange(at int) {
	w, n := &d.nodeDrafts[at], &d.nodes[at]
	switch {
	case !w.changed && !w.draining:
		d.releaseNode(at, outcomeAbandoned, "nothing is to be changed there any more")
	case w.stage == stageSettling:
	case !w.changed: // until those have ended who have the GPU
	case d.now.Sub(n.taint.since) > taintMaxAge:
		d.addAction(action{verb: addTaint, node: n.name, requests: w.requests})
	default:
		spec := d.desiredSpec(at)
		if lost := d.explainLoss(at, spec); lost != "" {
			d.releaseNode(at, outcomeAbandoned, lost)
			return
		}
		d.addAction(action{verb: writeSpec, node: n.name, spec: spec, requests: w.requests})
		d.requeueAt(n.taint.since.Add(taintMaxAge + agentTimeout))
	}
}

// finishChange goes on with a node whose spec is written.
func (d *draft) finishChange(at int) {
	n := &d.nodes[at]
	m := n.observed
	switch byAgent := n.taint.since.Add(taintMaxAge + agentTimeout); {
	case m == nil:
		d.releaseNode(at, outcomeAbandoned, "its GPUNode has gone")
	case !m.specObserved && d.now.Before(byAgent):
		d.requeueAt(byAgent)
	case !m.specObserved && m.differsFromSpec():
		// Should it come back later, it is not to change a node that takes pods.
		d.addAction(action{verb: writeSpec, node: n.name, spec: d.desiredSpec(at), restoresCurrent: true})
	case !m.specObserved:
		d.releaseNode(at, outcomeTimedOut, fmt.Sprintf("its agent has not answered within %s; is it running there?", agentTimeout))
	case m.failed && m.differsFromSpec() && d.now.Before(byAgent):
		d.backOffGPUs(m)
		d.addAction(action{verb: writeSpec, node: n.name, spec: d.desiredSpec(at), restoresCurrent: true})
		d.requeueAt(byAgent)
	case !m.matchesAllocatable(n.allocatable) && d.now.Before(byAgent.Add(allocatableTimeout)):
		d.requeueAt(byAgent.Add(allocatableTimeout))
	case !m.matchesAllocatable(n.allocatable) && m.isExceededBy(n.allocatable):
		// A pod would be sent to what is not there, and fail. The kubelet takes back
		// what a plugin that has gone had told.
	case !m.matchesAllocatable(n.allocatable):
		d.releaseNode(at, outcomeTimedOut, fmt.Sprintf("the node's allocatable lacks instances of its GPUs after %s; is the device plugin running there, with the strategy mixed?", allocatableTimeout))
	case m.failed:
		d.backOffGPUs(m)
		d.releaseNode(at, outcomeFailed, m.message)
	case n.taint.generation == m.generation:
		d.releaseNode(at, outcomeAbandoned, d.agentUnavailableReason(m))
	case d.isRolledBack(m):
		d.releaseNode(at, outcomeFailed, "its agent could not cut the GPUs as asked; they are as they were")
	default:
		d.releaseNode(at, outcomeDone, "")
	}
}

// differsFromSpec tells whether a GPU is not cut as the spec says.
func (m *observedNode) differsFromSpec() bool {
	for i := range m.gpus {
		if m.gpus[i].differsFromSpec {
			return true
		}
	}
	return false
}

// isRolledBack tells whether a GPU's layout could not be applied a moment ago.
func (d *draft) isRolledBack(m *observedNode) bool {
	for i := range m.gpus {
		if d.nextState.gpuBackoff[m.gpus[i].uuid].until.After(d.now) {
			return true
		}
	}
	return false
}

// backOffGPUs leaves alone for a while the GPUs whose layout could not be applied.
func (d *draft) backOffGPUs(m *observedNode) {
	for i := range m.gpus {
		uuid := m.gpus[i].uuid
		if before := d.nextState.gpuBackoff[uuid]; m.gpus[i].differsFromSpec && !before.until.After(d.now) {
			d.nextState.gpuBackoff[uuid] = before.next(d.now, gpuBackoffBase, gpuBackoffMax)
		}
	}
}

// releaseNode takes the taint off, and leaves the node alone for a while.
func (d *draft) releaseNode(at int, what outcome, why string) {
	n := &d.nodes[at]
	before := d.nextState.nodeBackoff[n.name]
	if what == outcomeDone {
		before.failures = 0
	}
	after := before.next(d.now, nodeBackoffBase, nodeBackoffMax)
	if what == outcomeDone {
		after.failures = 0
	}
	d.nextState.nodeBackoff[n.name] = after
	d.addAction(action{verb: removeTaint, node: n.name, outcome: what, reason: why, taintedSince: n.taint.since})
}
