// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// eligibility is how readily a GPU is cut.
type eligibility uint8

const (
	// eligibleInMIGMode: it is in MIG mode.
	eligibleInMIGMode eligibility = iota
	// eligibleAtOnce: its mode changes at once, and nobody has it.
	eligibleAtOnce
	// eligibleByReset: its mode changes by a reset that is allowed, and nobody has it.
	eligibleByReset
	// eligibleByDrain: the same, and those who have it are waited for.
	eligibleByDrain
	eligibilityCount

	// notEligible: nothing is cut there.
	notEligible
)

// stage is where a node is in a change.
type stage uint8

const (
	// stageOpen: it is not being changed and may be.
	stageOpen stage = iota
	// stageClosed: it is not being changed and may not be now.
	stageClosed
	// stageSettling: it is tainted, and pods may still be bound to it.
	stageSettling
	// stageReady: its pods are counted and the spec may be written.
	stageReady
	// stageFinishing: the spec is written, or nobody knows why it is tainted.
	stageFinishing
)

// draft is a decision in the making.
type draft struct {
	*snapshot
	now        time.Time
	nodeDrafts []nodeDraft
	gpuDrafts  []gpuDraft
	decision
}

// nodeDraft is a node in a draft.
type nodeDraft struct {
	stage stage
	// closedReason says why it is closed.
	closedReason string
	// first and last bound its cells.
	first, last int
	// changed and draining tell that GPUs of it are to be cut, now, or when those who
	// have it have ended; wants are for whom.
	changed, draining bool
	requests          []int
	// idleOffers are those who could use idle instances of it as they are.
	idleOffers []int
}

// gpuDraftsOf are a node's.
func (d *draft) gpuDraftsOf(node int) []gpuDraft {
	return d.gpuDrafts[d.nodeDrafts[node].first:d.nodeDrafts[node].last]
}

// draftNode makes the cells of a node.
func (d *draft) draftNode(at int) {
	n, w := &d.nodes[at], &d.nodeDrafts[at]
	w.first = len(d.gpuDrafts)
	if n.observed != nil && d.isRelevant(n) {
		coming := w.stage == stageFinishing && !n.observed.specObserved
		wholeUnknown := d.hasUnknownWholeHolders(n)
		for i := range n.observed.gpus {
			g := &n.observed.gpus[i]
			c := gpuDraft{node: at, gpu: g, eligibility: d.eligibilityOf(n, g, wholeUnknown), instances: g.instances, occupied: g.occupied, inUse: g.inUse}
			if coming && g.desired != nil && g.model != nil {
				c.instances = g.expectedInstances()
				c.updateMasks()
			}
			d.gpuDrafts = append(d.gpuDrafts, c)
		}
	}
	w.last = len(d.gpuDrafts)
	d.reserveForBoundPods(at)
}

// isRelevant tells whether anything can become of a node's GPUs: most of the time nobody
// waits and nothing changes.
func (s *snapshot) isRelevant(n *node) bool {
	return len(s.requests) > 0 || n.taint != nil || s.pools[n.pool].isStatic()
}

// gpuCount is how many there are of nodes that matter.
func (s *snapshot) gpuCount() (sum int) {
	for i := range s.nodes {
		if n := &s.nodes[i]; n.observed != nil && s.isRelevant(n) {
			sum += len(n.observed.gpus)
		}
	}
	return sum
}

// reserveForBoundPods keeps what bound pods need and, by the agent's report, do not have. They may
// have it by now, and nobody knows which: all idle instances of the profile stay until
// the agent has said so.
func (d *draft) reserveForBoundPods(at int) {
	n := &d.nodes[at]
	for i := range n.boundPods {
		for _, a := range n.boundPods[i].instanceRequests {
			if d.countHeld(at, &n.boundPods[i], a.profile) < a.count {
				d.reserveIdle(at, a.profile, maxInstancesPerPod)
			}
		}
	}
}

// countHeld is how many instances of a profile the agent says that the pod has.
func (d *draft) countHeld(at int, c *boundPod, name v1alpha1.MIGProfile) (n int) {
	cells := d.gpuDraftsOf(at)
	for i := range cells {
		for j := range cells[i].instances {
			it := &cells[i].instances[j]
			if it.pod != nil && it.pod.UID == c.uid && cells[i].gpu.model.resolveProfile(name) == it.Profile {
				n++
			}
		}
	}
	return n
}

// reserveIdle marks so many idle instances of a profile on a node as in use.
func (d *draft) reserveIdle(at int, name v1alpha1.MIGProfile, count int) {
	cells := d.gpuDraftsOf(at)
	for i := range cells {
		c := &cells[i]
		if c.gpu.model == nil {
			continue
		}
		p := c.gpu.model.resolveProfile(name)
		for j := 0; p != nil && j < len(c.instances) && count > 0; j++ {
			if it := &c.instances[j]; it.Profile == p && it.Use == mig.Idle {
				c.cloneInstances()
				c.instances[j].Use = mig.InUse
				c.inUse |= c.instances[j].Mask()
				count--
			}
		}
	}
}

// gpuDraft is a GPU in a draft.
type gpuDraft struct {
	node        int // its node
	gpu         *gpu
	eligibility eligibility
	// instances are what will be there; held are the slices of those that stay.
	instances       []instance
	occupied, inUse mig.Mask
	changed         bool
	cloned          bool // instances may be changed
}

// eligibilityOf is how readily the GPU is cut, in its pool.
func (d *draft) eligibilityOf(n *node, g *gpu, wholeUnknown bool) eligibility {
	resets := d.pools[n.pool].resets
	switch {
	case g.model == nil, d.previousState.gpuBackoff[g.uuid].until.After(d.now), g.differsFromSpec && !n.observed.failed:
		return notEligible
	case g.migEnabled && !g.resetPending:
		return eligibleInMIGMode
	case g.migEnabled: // it shall leave the mode: somebody wants it so
		return notEligible
	case g.model.migModel.ModeWithoutReset && !g.resetPending:
		if g.wholeHolders > 0 || wholeUnknown {
			return notEligible
		}
		return eligibleAtOnce
	case resets == v1alpha1.MIGResetsDrain && (g.wholeHolders > 0 || wholeUnknown):
		return eligibleByDrain
	case g.wholeHolders > 0, wholeUnknown, resets != v1alpha1.MIGResetsWhenIdle && resets != v1alpha1.MIGResetsDrain:
		return notEligible
	}
	return eligibleByReset
}

// hasUnknownWholeHolders tells whether pods have whole GPUs of the node of which the agent does not
// say which. That is known where its pods were counted, and remembered for a while.
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

// wholeGPUsRequested is how many whole GPUs the node's pods ask for, as far as they are known.
func (n *node) wholeGPUsRequested() (sum int) {
	for i := range n.boundPods {
		sum += n.boundPods[i].wholeGPUs
	}
	return sum
}

// wholeGPUHolders is how many of the machine's GPUs somebody has as a whole.
func (m *observedNode) wholeGPUHolders() (sum int) {
	for i := range m.gpus {
		if !m.gpus[i].migEnabled {
			sum += m.gpus[i].wholeHolders
		}
	}
	return sum
}

// expectedInstances is what the GPU will have once the spec is carried out: what is there
// already, as it is used, and what is not there yet, idle.
func (g *gpu) expectedInstances() []instance {
	var will []instance
	for i := range g.instances {
		if g.foreign&g.instances[i].Mask() != 0 {
			will = append(will, g.instances[i])
		}
	}
	for _, desired := range g.desired.Instances {
		p, err := g.model.migModel.Profile(desired.Profile)
		if err != nil {
			continue
		}
		it := instance{Instance: mig.Instance{Profile: p, Start: int(desired.Start)}}
		at := slices.IndexFunc(g.instances, func(there instance) bool { return there.Profile == p && there.Start == it.Start })
		if at >= 0 {
			it = g.instances[at]
		}
		will = append(will, it)
	}
	return will
}

// cloneInstances makes the instances the cell's, to be changed.
func (c *gpuDraft) cloneInstances() {
	if !c.cloned {
		c.instances, c.cloned = slices.Clone(c.instances), true
	}
}

// updateMasks reckons up what is taken and held.
func (c *gpuDraft) updateMasks() {
	c.occupied, c.inUse = 0, 0
	for i := range c.instances {
		it := &c.instances[i]
		c.occupied |= it.Mask()
		if it.Use != mig.Idle {
			c.inUse |= it.Mask()
		}
	}
}

// applySteps cuts the GPU as a plan for it alone says; what is made is kept for who wanted it.
func (c *gpuDraft) applySteps(destroy, create []mig.Step) {
	c.cloneInstances()
	for _, step := range destroy {
		c.instances = slices.DeleteFunc(c.instances, func(it instance) bool {
			return it.Profile == step.Profile && it.Start == step.Start
		})
	}
	for _, step := range create {
		c.instances = append(c.instances, instance{Instance: mig.Instance{Profile: step.Profile, Start: step.Start, Use: mig.InUse}})
	}
	c.changed = true
	c.updateMasks()
}

// migGPU is the GPU as package mig plans on it.
func (c *gpuDraft) migGPU() mig.GPU {
	return mig.GPU{Model: c.gpu.model.migModel, Instances: migInstances(c.instances)}
}
