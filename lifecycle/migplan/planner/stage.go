// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"sluice.dev/api/v1alpha1"
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
		d.requeueAt(n.taint.since.Add(settleTimeout))
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
	if b := d.previousState.nodeBackoff[n.name]; b.until.After(d.now) {
		d.requeueAt(b.until)
		if b.reason != "" {
			return "it is in backoff: " + b.reason
		}
		return "it is in backoff after its last change"
	}
	if n.observed.isExceededBy(n.allocatable) {
		return "its allocatable has instances that do not exist; check its device plugin"
	}
	return d.changeLimitReason(n)
}

// changeLimitReason returns why a node has reached the limit of changes; empty if it has not.
func (d *draft) changeLimitReason(n *node) string {
	limit := d.pools[n.pool].maxChangesPerHour
	if limit == 0 || n.observed == nil || len(n.observed.changes) < limit {
		return ""
	}
	recent := recentChanges(n.observed.changes, d.now)
	if len(recent) < limit {
		return ""
	}
	next := recent[len(recent)-limit].Add(time.Hour)
	d.requeueAt(next)
	return fmt.Sprintf("it was repartitioned %d times within an hour, and spec.mig.maxChangesPerHour of the node pool is %d; the next change is possible at %s",
		len(recent), limit, next.UTC().Format(time.RFC3339))
}

// agentUnavailableReason returns why an agent can apply no spec; empty if it can.
func (d *draft) agentUnavailableReason(m *observedNode) string {
	if m.unusableReason != "" {
		return m.unusableReason
	}
	until := m.sampledAt.Add(agentSilenceTimeout)
	if !until.After(d.now) {
		return fmt.Sprintf("its agent has reported no sample for %s; check that the agent runs on the node", agentSilenceTimeout)
	}
	return ""
}

// settledAt returns when the pods of a tainted node can be listed, and whether that time has
// passed: no scheduler binds a pod to the node after it.
func (n *node) settledAt(now time.Time) (until time.Time, settled bool) {
	until = n.taint.since.Add(bindSettleTime)
	for i := range n.boundPods {
		if !n.boundPods[i].usesGPU() {
			continue // it holds no device, and may tolerate the taint
		}
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
	case !w.changed && w.holding && d.now.Sub(n.taint.since) < drainTimeout:
		d.requeueAt(n.taint.since.Add(drainTimeout))
	case !w.changed && w.holding:
		kept := d.nextState.earmarks[d.pools[n.pool].name].gpu
		d.nextState.holds[kept] = gpuHolds{d.nextState.holds[kept].count + 1, d.nextState.holds[kept].pods}
		d.releaseNode(at, outcomePaused, fmt.Sprintf("a GPU is earmarked, but pods have used it for %s; the node accepts pods in between", drainTimeout))
	case !w.changed && !w.draining:
		d.releaseNode(at, outcomeAbandoned, "the change is no longer needed")
	case w.stage == stageSettling && d.now.Sub(n.taint.since) >= settleTimeout:
		d.releaseNode(at, outcomeTimedOut, fmt.Sprintf(
			"GPU pods were still bound to the node %s after its taint; find the pods that tolerate %s", settleTimeout, v1alpha1.TaintRepartitioning))
	case w.stage == stageSettling:
	case !w.changed && d.now.Sub(n.taint.since) >= drainTimeout:
		d.releaseNode(at, outcomeTimedOut, fmt.Sprintf("pods still hold the GPU to be reset %s after the node's taint", drainTimeout))
	case !w.changed: // a drain waits until the pods that hold the GPU have ended
		d.requeueAt(n.taint.since.Add(drainTimeout))
	case d.needsPause(at) && !d.pauseNode(at):
	case d.now.Sub(n.taint.since) > taintMaxAge:
		d.addAction(action{verb: addTaint, node: n.name, requests: w.requests})
	default:
		spec := d.desiredSpec(at)
		if lost := d.explainLoss(at, spec); lost != "" {
			d.releaseNode(at, outcomeAbandoned, lost)
			return
		}
		d.addAction(action{verb: writeSpec, node: n.name, spec: spec, requests: w.requests})
		for _, created := range w.created {
			d.nextState.made[created.place] = madeInstance{d.now, created.priority}
		}
		d.requeueAt(n.taint.since.Add(taintMaxAge + agentTimeout))
	}
}

// finishChange continues with a node whose spec is written.
func (d *draft) finishChange(at int) {
	n := &d.nodes[at]
	m := n.observed
	switch byAgent := n.taint.since.Add(taintMaxAge + agentTimeout); {
	case n.clientsPaused && (m == nil || m.specObserved && !m.nodesMissing || !d.now.Before(byAgent)):
		// The device plugin publishes the new devices.
		d.addAction(action{verb: resumeClients, node: n.name})
	case m == nil:
		d.releaseNode(at, outcomeAbandoned, "its GPUNode was deleted")
	case !m.specObserved && d.now.Before(byAgent):
		d.requeueAt(byAgent)
	case !m.specObserved && m.differsFromSpec() && !equality.Semantic.DeepEqual(d.desiredSpec(at), m.spec):
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
	case m.shared && m.specObserved: // allocatable counts replicas, so that it never matches
		d.releaseNode(at, outcomeFailed, m.unusableReason)
	case m.nodesMissing:
		// The device plugin offers former devices or, if it has started since, devices without device nodes. A
		// pod with one would fail.
		d.requeueAt(byAgent)
	case (!m.matchesAllocatable(n.allocatable) || m.pluginOutdated) && d.now.Before(byAgent.Add(allocatableTimeout)):
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
	case d.rollbackReason(m) != "":
		d.releaseNode(at, outcomeFailed, "its agent could not apply the layout and restored the former one: "+d.rollbackReason(m))
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

// rollbackReason returns why a GPU of the node is in backoff after a failed layout; empty if none is.
func (d *draft) rollbackReason(m *observedNode) string {
	for i := range m.gpus {
		if b := d.nextState.gpuBackoff[m.gpus[i].uuid]; b.until.After(d.now) {
			return b.reason
		}
	}
	return ""
}

// backOffGPUs starts the backoff of the GPUs whose layout could not be applied.
func (d *draft) backOffGPUs(m *observedNode) {
	for i := range m.gpus {
		uuid := m.gpus[i].uuid
		if before := d.nextState.gpuBackoff[uuid]; m.gpus[i].differsFromSpec && !before.until.After(d.now) {
			after := before.next(d.now, gpuBackoffBase, gpuBackoffMax)
			after.reason = m.message
			d.nextState.gpuBackoff[uuid] = after
		}
	}
}

// releaseNode removes the taint and starts the backoff of the node.
func (d *draft) releaseNode(at int, result outcome, reason string) {
	n := &d.nodes[at]
	before := d.nextState.nodeBackoff[n.name]
	if result == outcomeDone || result == outcomePaused {
		before.failures = 0
	}
	after := before.next(d.now, nodeBackoffBase, nodeBackoffMax)
	switch result {
	case outcomeDone, outcomePaused:
		after.failures = 0
	case outcomeTimedOut:
		after.reason = reason
	case outcomeAbandoned, outcomeFailed:
	}
	d.nextState.nodeBackoff[n.name] = after
	d.addAction(action{verb: removeTaint, node: n.name, outcome: result, reason: reason, taintedSince: n.taint.since})
}
