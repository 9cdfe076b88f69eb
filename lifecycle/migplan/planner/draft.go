// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// stage is the progress of a node's change.
type stage uint8

const (
	// stageOpen: no change is in progress; one may start.
	stageOpen stage = iota
	// stageClosed: no change is in progress, and none may start now.
	stageClosed
	// stageSettling: the node is tainted, and pods may still be bound to it.
	stageSettling
	// stageReady: the node's pods are listed, and the spec may be written.
	stageReady
	// stageFinishing: the spec is written, or the reason of the taint is unknown.
	stageFinishing
)

// draft is a decision in progress.
type draft struct {
	*snapshot
	now        time.Time
	nodeDrafts []nodeDraft
	gpuDrafts  []gpuDraft
	// reserved holds the places that are kept for requests to which other pods give way.
	reserved []reservedPlace
	decision
}

// nodeDraft is the draft of a node.
type nodeDraft struct {
	stage stage
	// closedReason says why the stage is stageClosed.
	closedReason string
	// first and last bound the node's entries in gpuDrafts.
	first, last int
	// changed and draining report whether GPUs of the node are to be repartitioned now, or
	// after their pods have ended; requests holds the requests that this serves.
	changed, draining bool
	requests          []int
	// holding reports whether the node accepts no pods while the pods on its earmarked GPU end.
	holding bool
	created []createdInstance // by the change, for requests
	// free holds the node's other resources that no request of this draft needs.
	free amounts
	// idleOffers holds the requests that idle instances of the node satisfy as they are.
	idleOffers []int
	// claimed reports whether a pod may be in its binding cycle on the node.
	claimed bool
}

// createdInstance is an instance to be created for a request of a priority.
type createdInstance struct {
	place
	priority int32
}

// gpuDraftsOf returns the drafts of a node's GPUs.
func (d *draft) gpuDraftsOf(node int) []gpuDraft {
	return d.gpuDrafts[d.nodeDrafts[node].first:d.nodeDrafts[node].last]
}

// draftNode creates the drafts of a node's GPUs.
func (d *draft) draftNode(at int) {
	n, w := &d.nodes[at], &d.nodeDrafts[at]
	w.first, w.free = len(d.gpuDrafts), n.free
	if n.observed != nil && d.isRelevant(n) {
		specPending := w.stage == stageFinishing && !n.observed.specObserved
		wholeUnknown := d.hasUnknownWholeHolders(n)
		for i := range n.observed.gpus {
			g := &n.observed.gpus[i]
			c := gpuDraft{
				node: at, gpu: g, eligibility: d.eligibilityOf(n, g, wholeUnknown), instances: g.instances, occupied: g.occupied, inUse: g.inUse,
			}
			if specPending && g.desired != nil && g.model != nil {
				c.instances = g.expectedInstances()
				c.updateMasks()
			}
			d.gpuDrafts = append(d.gpuDrafts, c)
		}
	}
	w.last = len(d.gpuDrafts)
	d.reserveForBoundPods(at)
}

// isRelevant reports whether a node's GPUs can change in this decision. Most of the time no
// pod is pending and no change is in progress.
func (s *snapshot) isRelevant(n *node) bool {
	return len(s.requests) > 0 || n.taint != nil || s.pools[n.pool].isStatic()
}

// gpuCount counts the GPUs of relevant nodes.
func (s *snapshot) gpuCount() (sum int) {
	for i := range s.nodes {
		if n := &s.nodes[i]; n.observed != nil && s.isRelevant(n) {
			sum += len(n.observed.gpus)
		}
	}
	return sum
}

// reserveForBoundPods reserves idle instances for bound pods that, by the agent's report, do
// not hold all their instances yet. They may hold any of them by now, so all idle instances
// of the profile are kept until the agent reports the holder.
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

// countHeld counts the instances of a profile that the pod holds by the agent's report.
func (d *draft) countHeld(at int, c *boundPod, name v1alpha1.MIGProfile) (n int) {
	drafts := d.gpuDraftsOf(at)
	for i := range drafts {
		if drafts[i].gpu.model == nil {
			continue // an instance of an unknown profile, or an impossible layout
		}
		for j := range drafts[i].instances {
			it := &drafts[i].instances[j]
			if it.pod != nil && it.pod.UID == c.uid && drafts[i].gpu.model.resolveProfile(name) == it.Profile {
				n++
			}
		}
	}
	return n
}

// reserveIdle marks up to count idle instances of a profile on a node as in use, those of an
// earmarked GPU last.
func (d *draft) reserveIdle(at int, name v1alpha1.MIGProfile, count int) {
	kept := d.previousState.earmarks[d.pools[d.nodes[at].pool].name].gpu
	drafts := d.gpuDraftsOf(at)
	last := slices.IndexFunc(drafts, func(c gpuDraft) bool { return c.gpu.uuid == kept })
	for k := range len(drafts) + 1 {
		i := k
		if k == last {
			continue
		}
		if k == len(drafts) {
			if i = last; last < 0 {
				break
			}
		}
		c := &drafts[i]
		if c.gpu.model == nil {
			continue
		}
		p := c.gpu.model.resolveProfile(name)
		for j := 0; p != nil && j < len(c.instances) && count > 0; j++ {
			if it := &c.instances[j]; it.Profile == p && it.Use == mig.Idle {
				c.reserveInstance(p, it.Start)
				count--
			}
		}
	}
}

// gpuDraft is the draft of a GPU.
type gpuDraft struct {
	node int // index of its node
	gpu  *gpu
	// instances holds the future instances; inUse masks the slices of those that must stay.
	instances       []instance
	eligibility     eligibility
	occupied, inUse mig.Mask
	changed         bool
	cloned          bool // instances may be modified
}

// expectedInstances returns the instances after the agent applies the spec: existing ones
// with their present use, new ones as idle.
func (g *gpu) expectedInstances() []instance {
	var expected []instance
	for i := range g.instances {
		if g.foreign&g.instances[i].Mask() != 0 {
			expected = append(expected, g.instances[i])
		}
	}
	for _, desired := range g.desired.Instances {
		p, err := g.model.migModel.Profile(desired.Profile)
		if err != nil {
			continue
		}
		it := instance{Instance: mig.Instance{Profile: p, Start: int(desired.Start)}}
		at := slices.IndexFunc(g.instances, func(current instance) bool { return current.Profile == p && current.Start == it.Start })
		if at >= 0 {
			it = g.instances[at]
		}
		expected = append(expected, it)
	}
	return expected
}

// cloneInstances copies the instances before their first modification.
func (c *gpuDraft) cloneInstances() {
	if !c.cloned {
		c.instances, c.cloned = slices.Clone(c.instances), true
	}
}

// updateMasks recomputes occupied and inUse.
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

// applySteps applies a plan to the GPU. Created instances count as in use, for their request.
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

// migGPU returns the GPU in the form that package mig plans with.
func (c *gpuDraft) migGPU() mig.GPU {
	return mig.GPU{Model: c.gpu.model.migModel, Instances: migInstances(c.instances)}
}
