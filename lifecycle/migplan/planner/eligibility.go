// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import "sluice.dev/api/v1alpha1"

// eligibility ranks the GPUs on which instances may be created; lower values come first.
type eligibility uint8

const (
	// eligibleInMIGMode: the GPU is in MIG mode.
	eligibleInMIGMode eligibility = iota
	// eligibleAtOnce: the mode changes without a reset, and no pod holds the GPU.
	eligibleAtOnce
	// eligibleByReset: the mode changes by a reset, which is allowed, and no pod holds the GPU.
	eligibleByReset
	// eligibleByDrain: the same, after the pods that hold the GPU have ended.
	eligibleByDrain
	eligibilityCount

	// notEligible: the GPU keeps its layout.
	notEligible
)

// eligibilityOf returns the eligibility of a GPU under its pool's rules.
func (d *draft) eligibilityOf(n *node, g *gpu, wholeUnknown bool) eligibility {
	pool := &d.pools[n.pool]
	switch {
	case g.model == nil, d.previousState.gpuBackoff[g.uuid].until.After(d.now), g.differsFromSpec && !n.observed.failed:
		return notEligible
	case g.migEnabled && !g.resetPending:
		return eligibleInMIGMode
	case g.migEnabled: // a reset is pending that disables the mode
		return notEligible
	case g.model.migModel.ModeWithoutReset: // also after a call that left the mode pending, since the GPU was in use
		if g.wholeHolders > 0 || wholeUnknown {
			return notEligible
		}
		return eligibleAtOnce
	case pool.resets == v1alpha1.MIGResetsDrain && (g.wholeHolders > 0 || wholeUnknown):
		return eligibleByDrain
	case g.wholeHolders > 0, wholeUnknown, !pool.mayReset():
		return notEligible
	}
	return eligibleByReset
}

// hasUnknownWholeHolders reports whether pods hold whole GPUs of the node that the agent does
// not report. The planner knows after listing the pods, and remembers it for nodeBackoffMax.
func (d *draft) hasUnknownWholeHolders(n *node) bool {
	if n.podsListed {
		delete(d.nextState.unknownHoldersUntil, n.name)
		if n.wholeGPUsRequested() <= n.observed.wholeGPUHolders() {
			return false
		}
		d.nextState.unknownHoldersUntil[n.name] = d.now.Add(nodeBackoffMax)
		return true
	}
	until := d.previousState.unknownHoldersUntil[n.name]
	d.requeueAt(until)
	return until.After(d.now)
}

// wholeGPUsRequested counts the whole GPUs that the listed pods of the node request.
func (n *node) wholeGPUsRequested() (sum int) {
	for i := range n.boundPods {
		sum += n.boundPods[i].wholeGPUs
	}
	return sum
}

// wholeGPUHolders counts the holders of whole GPUs of the node.
func (m *observedNode) wholeGPUHolders() (sum int) {
	for i := range m.gpus {
		if !m.gpus[i].migEnabled {
			sum += m.gpus[i].wholeHolders
		}
	}
	return sum
}
