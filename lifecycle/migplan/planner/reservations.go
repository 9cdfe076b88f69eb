// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/lifecycle/migplan/preemption"
)

// reservedPlace is a reservation as a draft finds it.
type reservedPlace struct {
	preemption.Reservation
	node int
	// request is the index of the claimant, and gpu that of the GPU's draft; -1 if it is gone.
	request, gpu int
	mask         mig.Mask
}

// collectReservations finds the reserved places. One claimant has at most one.
func (d *draft) collectReservations() {
	d.preemptions = preemptionPlan{reserve: map[string]*preemption.Reservation{}, nominate: map[int]string{}, explain: map[int]explanation{}}
	for at := range d.nodes {
		n := &d.nodes[at]
		if n.observed == nil || n.reservation == nil {
			continue
		}
		r := reservedPlace{Reservation: *n.reservation, node: at, gpu: -1}
		r.request = slices.IndexFunc(d.requests, func(w podRequest) bool { return w.uid == r.Claimant })
		for c := d.nodeDrafts[at].first; c < d.nodeDrafts[at].last; c++ {
			if it := &d.gpuDrafts[c]; it.gpu.uuid == r.GPU && it.gpu.model != nil {
				if p := it.gpu.model.resolveProfile(r.Profile); p != nil && slices.Contains(p.Starts, r.Start) {
					r.gpu, r.mask = c, p.Mask(r.Start)
				}
			}
		}
		twice := slices.ContainsFunc(d.reserved, func(other reservedPlace) bool { return other.Claimant == r.Claimant })
		switch {
		case r.request < 0 || twice || !d.requests[r.request].guaranteed:
			d.preemptions.reserve[n.name] = nil
			continue
		case r.gpu < 0:
			d.giveUp(r.Claimant, n.name) // the GPU is gone, or is another model
			continue
		}
		d.reserved = append(d.reserved, r)
	}
}

// isReserved reports whether a GPU is reserved for a request that is more urgent than request i.
func (d *draft) isReserved(c *gpuDraft, i int) bool {
	return slices.ContainsFunc(d.reserved, func(r reservedPlace) bool {
		return r.request < i && d.gpuDrafts[r.gpu].gpu.uuid == c.gpu.uuid
	})
}

// reservedNode returns the node with the place of request i; -1 for none.
func (d *draft) reservedNode(i int) int {
	for k := range d.reserved {
		if d.reserved[k].request == i {
			return d.reserved[k].node
		}
	}
	return -1
}

// isReleased reports whether this decision gives up the reservation of a node.
func (d *draft) isReleased(at int) bool {
	r, changed := d.preemptions.reserve[d.nodes[at].name]
	return changed && r == nil
}
