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
		d.updateOffers(i)
		if !w.isUnschedulable() {
			continue
		}
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
	nominated := map[int]bool{}
	for i := range d.requests {
		if d.keepClaims(i) {
			nominated[i] = true
		}
	}
	made := d.protectMade()
	for _, i := range open {
		d.reserveMade(made, d.requests[i].priority)
		if !nominated[i] && !d.placeRequest(i) {
			d.unmet = append(d.unmet, i)
		}
	}
	d.earmarkGPUs()
}

// hasIdle reports whether the drafted node has enough idle instances for request i, apart from those
// of a GPU that is earmarked for a more urgent one.
func (d *draft) hasIdle(at, i int) bool {
	for _, a := range d.requests[i].instanceRequests {
		if d.countIdle(at, i, a.profile) < a.count {
			return false
		}
	}
	return true
}

func (d *draft) countIdle(at, i int, name v1alpha1.MIGProfile) (n int) {
	drafts := d.gpuDraftsOf(at)
	for k := range drafts {
		c := &drafts[k]
		if c.gpu.model == nil || c.occupied == c.inUse || d.isEarmarked(c, i) {
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
	if len(m.idle) == 0 {
		return false
	}
	for _, a := range w.instanceRequests {
		n := 0
		for k := range m.idle {
			if m.idle[k].model.resolveProfile(a.profile) == m.idle[k].profile {
				n += m.idle[k].count
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
					return d.nodes[at].pool == pool && w.feasible[at] && d.canRepartition(at, changing) && d.fits(at, w) && !d.isOfferIgnored(at, w)
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

// placeOnGPUs finds slices for a request on GPUs of one eligibility on the allowed nodes.
func (d *draft) placeOnGPUs(i int, allowed func(node int) bool, t eligibility) bool {
	w := &d.requests[i]
	if len(w.instanceRequests) > 1 || w.instanceRequests[0].count > 1 {
		return d.placeOnOneNode(i, allowed, t)
	}
	name := w.instanceRequests[0].profile
	best, start, leastHarm := -1, 0, 0
	var candidates []int
	// Neighboring GPUs are mostly of one model.
	var model *driverModel
	var p *mig.Profile
	for at := range d.nodes {
		if !allowed(at) {
			continue
		}
		for c := d.nodeDrafts[at].first; c < d.nodeDrafts[at].last; c++ {
			it := &d.gpuDrafts[c]
			if it.eligibility != t || d.isEarmarked(it, i) {
				continue
			}
			if it.gpu.model != model {
				model, p = it.gpu.model, it.gpu.model.resolveProfile(name)
			}
			if p == nil {
				continue
			}
			if !p.IsLimited() {
				if s, harm, ok := model.migModel.BestPlacement(it.occupied, p); ok {
					if best < 0 || harm < leastHarm {
						best, start, leastHarm = c, s, harm
					}
					continue
				}
			}
			if best < 0 && len(candidates) < maxComparedGPUs && model.migModel.CanFit(it.inUse, p) {
				candidates = append(candidates, c)
			}
		}
	}
	if best >= 0 {
		p = d.gpuDrafts[best].gpu.model.resolveProfile(name)
		d.repartition(best, i, nil, []mig.Step{{Profile: p, Start: start}})
		d.nodeDrafts[d.gpuDrafts[best].node].free.subtract(&w.resources)
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
	c := candidates[change.Create[0].GPU]
	d.repartition(c, i, change.Destroy, change.Create)
	d.nodeDrafts[d.gpuDrafts[c].node].free.subtract(&w.resources)
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
			if it := &d.gpuDrafts[c]; it.eligibility <= t && !d.isEarmarked(it, i) {
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
	d.nodeDrafts[node].free.subtract(&w.resources)
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
	for _, step := range create {
		w.created = append(w.created, createdInstance{place{it.gpu.uuid, step.Profile, step.Start}, d.requests[request].priority})
	}
	if it.eligibility == eligibleByDrain {
		w.draining = true
	} else {
		w.changed = true
	}
	w.requests = append(w.requests, request)
}
