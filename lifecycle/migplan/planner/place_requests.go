// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// placeRequests finds a place for each want: what is idle, then room, then what idle
// instances give up; on MIG-enabled GPUs before others, and on nodes that are being
// changed anyhow before others.
func (d *draft) placeRequests() {
	open := make([]int, 0, len(d.requests))
	for i := range d.requests {
		w := &d.requests[i]
		if at := w.plannableAt(); at.After(d.now) {
			d.requeueAt(at)
			continue
		}
		d.countDemand(w)
		if !d.offerIdle(i) {
			open = append(open, i)
		}
	}
	for _, i := range open {
		if w := &d.requests[i]; w.missesOtherResource || !d.placeRequest(i) {
			d.unmet = append(d.unmet, i)
		}
	}
}

// offerIdle gives a want what is idle, if there is: its scheduler is left to find it. One
// whose scheduler did not use what is there is not offered it again.
func (d *draft) offerIdle(i int) bool {
	w := &d.requests[i]
	since, offered := d.previousState.offeredSince[w.uid]
	if offered && d.now.Sub(since) >= idleOfferGracePeriod {
		d.recordOffer(w, since)
		return false
	}
	for _, pool := range w.poolOrder {
		for at := range d.nodes {
			if d.nodes[at].pool != pool || !w.feasible[at] || !d.hasIdle(at, w) {
				continue
			}
			for _, a := range w.instanceRequests {
				d.reserveIdle(at, a.profile, a.count)
			}
			if !offered || d.nodes[at].taint != nil {
				since = d.now // its scheduler cannot have it yet
			}
			d.recordOffer(w, since)
			d.requeueAt(since.Add(idleOfferGracePeriod))
			d.nodeDrafts[at].idleOffers = append(d.nodeDrafts[at].idleOffers, i)
			return true
		}
	}
	return false
}

// hasIdle tells whether a node has all that the want asks for.
func (d *draft) hasIdle(at int, w *podRequest) bool {
	for _, a := range w.instanceRequests {
		if d.countIdle(at, a.profile) < a.count {
			return false
		}
	}
	return true
}

func (d *draft) countIdle(at int, name v1alpha1.MIGProfile) (n int) {
	cells := d.gpuDraftsOf(at)
	for i := range cells {
		c := &cells[i]
		if c.gpu.model == nil || c.occupied == c.inUse {
			continue
		}
		p := c.gpu.model.resolveProfile(name)
		if p == nil {
			continue
		}
		for j := range c.instances {
			if it := &c.instances[j]; it.Profile == p && it.Use == mig.Idle {
				n++
			}
		}
	}
	return n
}

// hasIdle tells whether the machine has idle all that a want asks for.
func (m *observedNode) hasIdle(w *podRequest) bool {
	for _, a := range w.instanceRequests {
		n := 0
		for i := range m.gpus {
			g := &m.gpus[i]
			for j := range g.instances {
				if it := &g.instances[j]; it.Use == mig.Idle && g.model != nil && g.model.resolveProfile(a.profile) == it.Profile {
					n++
				}
			}
		}
		if n < a.count {
			return false
		}
	}
	return true
}

// maxComparedGPUs is how many GPUs are weighed against each other for what has no room
// without something idle giving way.
const maxComparedGPUs = 64

// placeRequest makes room for a want, in the draft.
func (d *draft) placeRequest(i int) bool {
	w := &d.requests[i]
	for _, pool := range w.poolOrder {
		if d.pools[pool].isStatic() {
			continue
		}
		for t := eligibleInMIGMode; t < eligibilityCount; t++ {
			for _, changing := range []bool{true, false} {
				if d.placeOnGPUs(i, func(at int) bool {
					return d.nodes[at].pool == pool && w.feasible[at] && d.canRepartition(at, changing) && !d.isOfferIgnored(at, w)
				}, t) {
					return true
				}
			}
		}
	}
	return false
}

// canRepartition tells whether a node may be cut: one that is being changed and whose spec is
// not written yet, or one that may be.
func (d *draft) canRepartition(at int, changing bool) bool {
	if changing {
		return d.nodeDrafts[at].stage == stageSettling || d.nodeDrafts[at].stage == stageReady
	}
	return d.nodeDrafts[at].stage == stageOpen
}

// isOfferIgnored tells whether the node has had for long what the want asks for: there it
// is not that what keeps the pod out.
func (d *draft) isOfferIgnored(at int, w *podRequest) bool {
	since, offered := d.previousState.offeredSince[w.uid]
	return offered && d.now.Sub(since) >= idleOfferGracePeriod && d.nodes[at].observed.hasIdle(w)
}

// placeOnGPUs finds room for a want on GPUs of a tier of nodes that may be cut.
func (d *draft) placeOnGPUs(i int, may func(node int) bool, t eligibility) bool {
	w := &d.requests[i]
	if len(w.instanceRequests) > 1 || w.instanceRequests[0].count > 1 {
		return d.placeOnOneNode(i, may, t)
	}
	name := w.instanceRequests[0].profile
	best, start, least := -1, 0, 0
	var crowded []int
	for at := range d.nodes {
		if !may(at) {
			continue
		}
		for c := d.nodeDrafts[at].first; c < d.nodeDrafts[at].last; c++ {
			it := &d.gpuDrafts[c]
			if it.eligibility != t {
				continue
			}
			p := it.gpu.model.resolveProfile(name)
			if p == nil {
				continue
			}
			board := it.gpu.model.migModel
			if p.Attribute == "" {
				if s, harm, ok := board.BestPlacement(it.occupied, p); ok {
					if best < 0 || harm < least {
						best, start, least = c, s, harm
					}
					continue
				}
			}
			if best < 0 && len(crowded) < maxComparedGPUs && board.CanFit(it.inUse, p) {
				crowded = append(crowded, c)
			}
		}
	}
	if best >= 0 {
		p := d.gpuDrafts[best].gpu.model.resolveProfile(name)
		d.repartition(best, i, nil, []mig.Step{{Profile: p, Start: start}})
		return true
	}
	gpus := make([]mig.GPU, len(crowded))
	for k, c := range crowded {
		gpus[k] = d.gpuDrafts[c].migGPU()
	}
	change := mig.Plan(gpus, []v1alpha1.MIGProfile{name})
	if len(change.Create) != 1 {
		return false
	}
	d.repartition(crowded[change.Create[0].GPU], i, change.Destroy, change.Create)
	return true
}

// placeOnOneNode finds a node that has room for several instances at once: the one
// where least is given up, and then least is made.
func (d *draft) placeOnOneNode(i int, may func(node int) bool, t eligibility) bool {
	w := &d.requests[i]
	var best mig.Change
	var at []int
	for n := range d.nodes {
		if !may(n) {
			continue
		}
		var cells []int
		var gpus []mig.GPU
		for c := d.nodeDrafts[n].first; c < d.nodeDrafts[n].last; c++ {
			if it := &d.gpuDrafts[c]; it.eligibility <= t {
				cells, gpus = append(cells, c), append(gpus, it.migGPU())
			}
		}
		change := mig.Plan(gpus, w.profiles())
		if len(change.Unmet) > 0 || change.IsEmpty() {
			continue
		}
		if at == nil || len(change.Destroy) < len(best.Destroy) || len(change.Destroy) == len(best.Destroy) && len(change.Create) < len(best.Create) {
			best, at = change, cells
		}
	}
	if at == nil {
		return false
	}
	made := map[*mig.Profile]int{}
	for k, c := range at {
		destroy, create := stepsOnGPU(best.Destroy, k), stepsOnGPU(best.Create, k)
		for _, step := range create {
			made[step.Profile]++
		}
		if len(destroy)+len(create) > 0 {
			d.repartition(c, i, destroy, create)
		}
	}
	node := d.gpuDrafts[at[0]].node
	for _, a := range w.instanceRequests {
		left := a.count
		for p, n := range made {
			if d.gpuDrafts[at[0]].gpu.model.resolveProfile(a.profile) == p {
				left -= n
			}
		}
		d.reserveIdle(node, a.profile, left)
	}
	return true
}

// profiles are the instances one by one.
func (w *podRequest) profiles() []v1alpha1.MIGProfile {
	var all []v1alpha1.MIGProfile
	for _, a := range w.instanceRequests {
		for range a.count {
			all = append(all, a.profile)
		}
	}
	return all
}

func stepsOnGPU(steps []mig.Step, gpu int) (of []mig.Step) {
	for _, step := range steps {
		if step.GPU == gpu {
			of = append(of, step)
		}
	}
	return of
}

// repartition changes a GPU for a want, in the draft.
func (d *draft) repartition(c, wanted int, destroy, create []mig.Step) {
	it := &d.gpuDrafts[c]
	it.applySteps(destroy, create)
	w := &d.nodeDrafts[it.node]
	if it.eligibility == eligibleByDrain {
		w.draining = true
	} else {
		w.changed = true
	}
	w.requests = append(w.requests, wanted)
}
