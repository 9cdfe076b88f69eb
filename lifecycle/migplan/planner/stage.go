// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"time"
)

// determineStage sets the stage of a node.
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
		// No spec is written for an absent agent.
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

// closedReason returns why a node without the taint cannot change now; empty if it can.
func (d *draft) closedReason(n *node) string {
	if n.observed == nil {
		return "it has no GPUNode"
	}
	if n.unsuitableReason != "" {
		return n.unsuitableReason
	}
	if reason := d.agentUnavailableReason(n.observed); reason != "" {
		return reason
	}
	if !n.observed.specObserved {
		return "its agent has not applied the last layout yet"
	}
	if until := d.previousState.nodeBackoff[n.name].until; until.After(d.now) {
		d.requeueAt(until)
		return "it is in backoff after its last change"
	}
	return ""
}

// agentUnavailableReason returns why an agent can apply no spec; empty if it can.
func (d *draft) agentUnavailableReason(m *observedNode) string {
	if m.unusableReason != "" {
		return m.unusableReason
	}
	if !m.sampledAt.IsZero() {
		if until := m.sampledAt.Add(agentSilenceTimeout); !until.After(d.now) {
			return fmt.Sprintf("its agent has reported no sample for %s", agentSilenceTimeout)
		}
	}
	return ""
}

// settledAt returns when the pods of a tainted node can be listed, and whether that time has
// passed: no scheduler binds a pod to the node after it.
func (n *node) settledAt(now time.Time) (until time.Time, settled bool) {
	until = n.taint.since.Add(bindSettleTime)
	for i := range n.boundPods {
		// A binding in the future comes from another clock.
		if at := n.boundPods[i].bound; at.Before(now.Add(bindSettleTime)) && at.Add(bindSettleTime).After(until) {
			until = at.Add(bindSettleTime)
		}
	}
	return until, !until.After(now)
}

// prepareChange continues with a tainted node whose spec is not written.
func (d *draft) prepareChange(at int) {
	w, n := &d.nodeDrafts[at], &d.nodes[at]
	switch {
	case !w.changed && !w.draining:
		d.releaseNode(at, outcomeAbandoned, "the change is no longer needed")
	case w.stage == stageSettling:
	case !w.changed: // a drain waits until the pods that hold the GPU have ended
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

// finishChange continues with a node whose spec is written.
func (d *draft) finishChange(at int) {
	n := &d.nodes[at]
	m := n.observed
	switch byAgent := n.taint.since.Add(taintMaxAge + agentTimeout); {
	case m == nil:
		d.releaseNode(at, outcomeAbandoned, "its GPUNode was deleted")
	case !m.specObserved && d.now.Before(byAgent):
		d.requeueAt(byAgent)
	case !m.specObserved && m.differsFromSpec():
		// An agent that returns later must not change a node that accepts pods.
		d.addAction(action{verb: writeSpec, node: n.name, spec: d.desiredSpec(at), restoresCurrent: true})
	case !m.specObserved:
		d.releaseNode(
			at, outcomeTimedOut, fmt.Sprintf("its agent has not reported within %s; check that the agent runs on the node", agentTimeout),
		)
	case m.failed && m.differsFromSpec() && d.now.Before(byAgent):
		d.backOffGPUs(m)
		d.addAction(action{verb: writeSpec, node: n.name, spec: d.desiredSpec(at), restoresCurrent: true})
		d.requeueAt(byAgent)
	case !m.matchesAllocatable(n.allocatable) && d.now.Before(byAgent.Add(allocatableTimeout)):
		d.requeueAt(byAgent.Add(allocatableTimeout))
	case !m.matchesAllocatable(n.allocatable) && m.isExceededBy(n.allocatable):
		// A pod scheduled to a missing device would fail. The kubelet removes the
		// devices of a device plugin that has stopped.
	case !m.matchesAllocatable(n.allocatable):
		d.releaseNode(at, outcomeTimedOut, fmt.Sprintf(
			"the node's allocatable lacks instances of its GPUs after %s; check that the device plugin runs on the node with the MIG strategy mixed",
			allocatableTimeout,
		))
	case m.failed:
		d.backOffGPUs(m)
		d.releaseNode(at, outcomeFailed, m.message)
	case n.taint.generation == m.generation:
		d.releaseNode(at, outcomeAbandoned, d.agentUnavailableReason(m))
	case d.isRolledBack(m):
		d.releaseNode(at, outcomeFailed, "its agent could not apply the layout and restored the former one")
	default:
		d.releaseNode(at, outcomeDone, "")
	}
}

// differsFromSpec reports whether the layout of a GPU differs from the spec.
func (m *observedNode) differsFromSpec() bool {
	for i := range m.gpus {
		if m.gpus[i].differsFromSpec {
			return true
		}
	}
	return false
}

// isRolledBack reports whether a GPU of the node is in backoff after a failed layout.
func (d *draft) isRolledBack(m *observedNode) bool {
	for i := range m.gpus {
		if d.nextState.gpuBackoff[m.gpus[i].uuid].until.After(d.now) {
			return true
		}
	}
	return false
}

// backOffGPUs starts the backoff of the GPUs whose layout could not be applied.
func (d *draft) backOffGPUs(m *observedNode) {
	for i := range m.gpus {
		uuid := m.gpus[i].uuid
		if before := d.nextState.gpuBackoff[uuid]; m.gpus[i].differsFromSpec && !before.until.After(d.now) {
			d.nextState.gpuBackoff[uuid] = before.next(d.now, gpuBackoffBase, gpuBackoffMax)
		}
	}
}

// releaseNode removes the taint and starts the backoff of the node.
func (d *draft) releaseNode(at int, result outcome, reason string) {
	n := &d.nodes[at]
	before := d.nextState.nodeBackoff[n.name]
	if result == outcomeDone {
		before.failures = 0
	}
	after := before.next(d.now, nodeBackoffBase, nodeBackoffMax)
	if result == outcomeDone {
		after.failures = 0
	}
	d.nextState.nodeBackoff[n.name] = after
	d.addAction(action{verb: removeTaint, node: n.name, outcome: result, reason: reason, taintedSince: n.taint.since})
}
