// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// earmark keeps a GPU for a request that finds no room, so that small instances do not take each
// slice as soon as it is free: no instance is created on the GPU for less urgent requests, and its
// idle instances that are in the way are destroyed, until the request fits.
type earmark struct {
	request types.UID
	gpu     v1alpha1.GPUUUID
}

// gpuHolds counts how often the node of a GPU accepted no pods for an earmark while the GPU had these pods.
type gpuHolds struct {
	count int
	pods  uint64
}

// maxHolds is the number of times that a node accepts no pods for an earmark while no pod on the GPU ends.
const maxHolds = 6

// earmarkGPUs earmarks at most one GPU of each pool, for the most urgent request that has found no
// room for earmarkDelay, and destroys its idle instances that are in the way.
func (d *draft) earmarkGPUs() {
	for _, i := range d.unmet {
		w := &d.requests[i]
		at := w.unschedulableSince.Add(earmarkDelay)
		if at.After(d.now) {
			d.requeueAt(at)
			continue
		}
		if len(w.instanceRequests) > 1 || w.instanceRequests[0].count > 1 {
			continue // it needs room on several GPUs at once
		}
		if d.reservedNode(i) >= 0 {
			continue // it has a GPU on which others give way
		}
		for _, pool := range w.poolOrder {
			name := d.pools[pool].name
			if _, taken := d.nextState.earmarks[name]; taken || d.pools[pool].isStatic() {
				continue
			}
			c, room := d.chooseEarmark(i, pool)
			if c < 0 {
				continue
			}
			gpu := d.gpuDrafts[c].gpu
			d.nextState.earmarks[name] = earmark{request: w.uid, gpu: gpu.uuid}
			if pods := gpu.podsDigest(); d.nextState.holds[gpu.uuid].pods != pods {
				d.nextState.holds[gpu.uuid] = gpuHolds{pods: pods}
			}
			d.clearIdle(c, i, room, d.nextState.holds[gpu.uuid].count < maxHolds)
			break
		}
	}
}

// chooseEarmark returns the GPU of a pool on which the fewest slices in use are in the way of a
// request, preferring the present earmark, and the slices that the request would use; -1 for none.
func (d *draft) chooseEarmark(i, pool int) (best int, room mig.Mask) {
	w := &d.requests[i]
	best = -1
	fewest := 0
	for at := range d.nodes {
		if d.nodes[at].pool != pool || !w.feasible[at] || d.nodes[at].observed == nil || d.nodes[at].unsuitableReason != "" ||
			d.agentUnavailableReason(d.nodes[at].observed) != "" || !d.fits(at, w) || d.isOfferIgnored(at, w) {
			continue
		}
		for c := d.nodeDrafts[at].first; c < d.nodeDrafts[at].last; c++ {
			it := &d.gpuDrafts[c]
			if it.eligibility != eligibleInMIGMode {
				continue
			}
			p := it.gpu.model.resolveProfile(w.instanceRequests[0].profile)
			if p == nil {
				continue
			}
			for _, start := range p.Starts {
				mask := p.Mask(start)
				n := bits.OnesCount8(uint8(it.gpu.inUse & mask))
				if mask&it.gpu.foreign != 0 {
					continue
				}
				isPresent := d.previousState.earmarks[d.pools[pool].name].gpu == it.gpu.uuid
				if best < 0 || n < fewest || n == fewest && isPresent && d.gpuDrafts[best].gpu != it.gpu {
					best, room, fewest = c, mask, n
				}
			}
		}
	}
	return best, room
}

// clearIdle destroys the idle instances of a GPU in some slices, if its node can change now. While
// less urgent pods are pending, which would take each slice as soon as its pod has ended, the node
// accepts no pods, for drainTimeout at a time, if mayHold.
func (d *draft) clearIdle(c, request int, room mig.Mask, mayHold bool) {
	it := &d.gpuDrafts[c]
	w := &d.nodeDrafts[it.node]
	if !d.canRepartition(it.node, false) && !d.canRepartition(it.node, true) {
		return
	}
	var destroy []mig.Step
	for j := range it.instances {
		switch in := &it.instances[j]; {
		case in.Mask()&room == 0:
		case in.Use == mig.Idle:
			destroy = append(destroy, mig.Step{Profile: in.Profile, Start: in.Start})
		case in.Mask()&it.gpu.inUse == 0: // reserved for a pod, until its agent reports what it holds
			w.holding = mayHold
		}
	}
	if len(destroy) > 0 {
		d.repartition(c, request, destroy, nil)
		return
	}
	for i := request + 1; i < len(d.requests) && mayHold && !w.holding; i++ {
		w.holding = d.requests[i].isUnschedulable() && d.requests[i].feasible[it.node]
	}
	if w.holding {
		w.requests = append(w.requests, request)
	}
}

// isEarmarked reports whether a GPU is kept for a request that is more urgent than request i.
func (d *draft) isEarmarked(c *gpuDraft, i int) bool {
	if d.isReserved(c, i) {
		return true
	}
	kept, some := d.previousState.earmarks[d.pools[d.nodes[c.node].pool].name]
	if !some || kept.gpu != c.gpu.uuid {
		return false
	}
	holder := slices.IndexFunc(d.requests, func(w podRequest) bool { return w.uid == kept.request })
	return holder >= 0 && holder < i
}
