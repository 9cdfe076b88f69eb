// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// placeRequests finds a place for each request: an idle instance, then free slices, then the
// slices of idle instances. GPUs in MIG mode and nodes already in a change come first.
func (d *draft) placeRequests() {
	open := make([]int, 0, len(d.requests))
	for i := range d.requests {
		w := &d.requests[i]
		if at := w.plannableAt(); at.After(d.now) {
			d.requeueAt(at)
			continue
		}
		for _, a := range w.instanceRequests {
			d.requested[a.profile] += a.count
		}
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

// offerIdle reserves idle instances for a request, if there are enough, and leaves the binding
// to the scheduler. A request whose scheduler did not use an offer gets no second one.
func (d *draft) offerIdle(i int) bool {
	w := &d.requests[i]
	since, offered := d.previousState.offeredSince[w.uid]
	if offered && d.now.Sub(since) >= idleOfferGracePeriod {
		d.nextState.offeredSince[w.uid] = since
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
				since = d.now // the scheduler cannot use the instances yet
			}
			d.nextState.offeredSince[w.uid] = since
			d.requeueAt(since.Add(idleOfferGracePeriod))
			d.nodeDrafts[at].idleOffers = append(d.nodeDrafts[at].idleOffers, i)
			return true
		}
	}
	return false
}

// hasIdle reports whether the drafted node has enough idle instances for the request.
func (d *draft) hasIdle(at int, w *podRequest) bool {
	for _, a := range w.instanceRequests {
		if d.countIdle(at, a.profile) < a.count {
			return false
		}
	}
	return true
}

func (d *draft) countIdle(at int, name v1alpha1.MIGProfile) (n int) {
	drafts := d.gpuDraftsOf(at)
	for i := range drafts {
		c := &drafts[i]
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

// hasIdle reports whether the observed node has enough idle instances for the request.
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

// maxComparedGPUs bounds the GPUs that are compared where idle instances must be destroyed.
const maxComparedGPUs = 64

// placeRequest creates the instances of a request in the draft.
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

// canRepartition reports whether a node may be repartitioned: with changing a node in a change
// whose spec is not written yet, else a node on which a change may start.
func (d *draft) canRepartition(at int, changing bool) bool {
	if changing {
		return d.nodeDrafts[at].stage == stageSettling || d.nodeDrafts[at].stage == stageReady
	}
	return d.nodeDrafts[at].stage == stageOpen
}

// isOfferIgnored reports whether the node had enough idle instances for idleOfferGracePeriod
// and the scheduler did not use them: something else keeps the pod away from this node.
func (d *draft) isOfferIgnored(at int, w *podRequest) bool {
	since, offered := d.previousState.offeredSince[w.uid]
	return offered && d.now.Sub(since) >= idleOfferGracePeriod && d.nodes[at].observed.hasIdle(w)
}

// placeOnGPUs finds slices for a request on GPUs of one eligibility on the allowed nodes.
func (d *draft) placeOnGPUs(i int, allowed func(node int) bool, t eligibility) bool {
	w := &d.requests[i]
	if len(w.instanceRequests) > 1 || w.instanceRequests[0].count > 1 {
		return d.placeOnOneNode(i, allowed, t)
	}
	name := w.instanceRequests[0].profile
	best, start, leastHarm := -1, 0, 0
	var candidates []int
	for at := range d.nodes {
		if !allowed(at) {
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
			model := it.gpu.model.migModel
			if p.Attribute == "" {
				if s, harm, ok := model.BestPlacement(it.occupied, p); ok {
					if best < 0 || harm < leastHarm {
						best, start, leastHarm = c, s, harm
					}
					continue
				}
			}
			if best < 0 && len(candidates) < maxComparedGPUs && model.CanFit(it.inUse, p) {
				candidates = append(candidates, c)
			}
		}
	}
	if best >= 0 {
		p := d.gpuDrafts[best].gpu.model.resolveProfile(name)
		d.repartition(best, i, nil, []mig.Step{{Profile: p, Start: start}})
		return true
	}
	gpus := make([]mig.GPU, len(candidates))
	for k, c := range candidates {
		gpus[k] = d.gpuDrafts[c].migGPU()
	}
	change := mig.Plan(gpus, []v1alpha1.MIGProfile{name})
	if len(change.Create) != 1 {
		return false
	}
	d.repartition(candidates[change.Create[0].GPU], i, change.Destroy, change.Create)
	return true
}

// placeOnOneNode finds a node for several instances at once: the one with the fewest instances
// to destroy, then the fewest to create.
func (d *draft) placeOnOneNode(i int, allowed func(node int) bool, t eligibility) bool {
	w := &d.requests[i]
	var best mig.Change
	var bestDrafts []int
	for n := range d.nodes {
		if !allowed(n) {
			continue
		}
		var drafts []int
		var gpus []mig.GPU
		for c := d.nodeDrafts[n].first; c < d.nodeDrafts[n].last; c++ {
			if it := &d.gpuDrafts[c]; it.eligibility <= t {
				drafts, gpus = append(drafts, c), append(gpus, it.migGPU())
			}
		}
		change := mig.Plan(gpus, w.profiles())
		if len(change.Unmet) > 0 || change.IsEmpty() {
			continue
		}
		if bestDrafts == nil || len(change.Destroy) < len(best.Destroy) ||
			len(change.Destroy) == len(best.Destroy) && len(change.Create) < len(best.Create) {
			best, bestDrafts = change, drafts
		}
	}
	if bestDrafts == nil {
		return false
	}
	created := map[*mig.Profile]int{}
	for k, c := range bestDrafts {
		destroy, create := stepsOnGPU(best.Destroy, k), stepsOnGPU(best.Create, k)
		for _, step := range create {
			created[step.Profile]++
		}
		if len(destroy)+len(create) > 0 {
			d.repartition(c, i, destroy, create)
		}
	}
	node := d.gpuDrafts[bestDrafts[0]].node
	for _, a := range w.instanceRequests {
		missing := a.count
		for p, n := range created {
			if d.gpuDrafts[bestDrafts[0]].gpu.model.resolveProfile(a.profile) == p {
				missing -= n
			}
		}
		d.reserveIdle(node, a.profile, missing)
	}
	return true
}

// profiles lists the requested instances one by one.
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

// repartition applies a plan for a request to a GPU in the draft.
func (d *draft) repartition(c, request int, destroy, create []mig.Step) {
	it := &d.gpuDrafts[c]
	it.applySteps(destroy, create)
	w := &d.nodeDrafts[it.node]
	if it.eligibility == eligibleByDrain {
		w.draining = true
	} else {
		w.changed = true
	}
	w.requests = append(w.requests, request)
}
