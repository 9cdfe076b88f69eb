// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mig computes placements of MIG instances. It returns the positions at which instances fit
// on a GPU model, the placement that leaves the most room for later requests, and the smallest
// change that makes room for requested profiles.
//
// The placements, identifiers and sizes are the values that NVML reports. The variable models names
// their sources. The package does no I/O and never moves an instance in use.
package mig

import (
	"math/bits"

	"sluice.dev/api/v1alpha1"
)

// Step creates or destroys one instance.
type Step struct {
	// GPU is the index of the GPU in the arguments.
	GPU     int
	Profile *Profile
	Start   int
}

// Change changes one layout to another: it destroys instances first and then creates others.
type Change struct {
	Destroy, Create []Step
	// Unmet are the indices of the requests that would not fit even if all unclaimed idle instances
	// were destroyed.
	Unmet []int
}

// IsEmpty reports whether nothing changes.
func (c *Change) IsEmpty() bool { return len(c.Destroy)+len(c.Create) == 0 }

// Plan returns the smallest change after which each request has an idle instance, earlier requests
// first. A request gets an idle instance of its profile, else a new instance on free slices, else a
// new instance in place of idle instances. Plan never touches instances in use and skips GPUs whose
// model lacks the profile.
func Plan(gpus []GPU, requests []v1alpha1.MIGProfile) Change {
	d := newLayoutDraft(gpus)
	open := make([]int, 0, len(requests))
	for i, name := range requests {
		if !d.claimIdle(name) {
			open = append(open, i)
		}
	}
	for _, i := range open {
		if at, ok := d.cheapestPlacement(requests[i], Idle); ok {
			d.place(at)
		} else {
			d.change.Unmet = append(d.change.Unmet, i)
		}
	}
	return d.change
}

// PlanPreemption returns the instances to preempt so that one more instance of the profile fits: the
// fewest victims, and among equal numbers the fewest slices. It returns false if preemption does
// not help. Idle instances in the way are destroyed as well. Victims are indices of
// gpus[at.GPU].Instances.
func PlanPreemption(gpus []GPU, profile v1alpha1.MIGProfile) (at Step, victims []int, ok bool) {
	d := newLayoutDraft(gpus)
	found, ok := d.cheapestPlacement(profile, Preemptible)
	if !ok {
		return Step{}, nil, false
	}
	for i := range gpus[found.GPU].Instances {
		it := &gpus[found.GPU].Instances[i]
		if it.Use == Preemptible && it.Mask()&found.Profile.Mask(found.Start) != 0 {
			victims = append(victims, i)
		}
	}
	return found, victims, true
}

// layoutDraft is the layout that results from the steps so far.
type layoutDraft struct {
	gpus     []GPU
	occupied []Mask
	change   Change
}

func newLayoutDraft(gpus []GPU) *layoutDraft {
	d := &layoutDraft{gpus: make([]GPU, len(gpus)), occupied: make([]Mask, len(gpus))}
	for i := range gpus {
		d.gpus[i] = GPU{Model: gpus[i].Model, Instances: append([]Instance(nil), gpus[i].Instances...)}
		d.occupied[i] = gpus[i].Occupied()
	}
	return d
}

// claimIdle assigns an idle instance of the profile to a request, on the fullest GPU.
func (d *layoutDraft) claimIdle(name v1alpha1.MIGProfile) bool {
	var found *Instance
	most := -1
	for i := range d.gpus {
		p, err := d.gpus[i].Model.Profile(name)
		if err != nil {
			continue
		}
		full := bits.OnesCount8(uint8(d.occupied[i]))
		for j := range d.gpus[i].Instances {
			if it := &d.gpus[i].Instances[j]; it.Use == Idle && it.Profile == p && full > most {
				found, most = it, full
			}
		}
	}
	if found != nil {
		found.Use = InUse
	}
	return found != nil
}

// placementCost is the cost of a placement, the most important part first.
type placementCost struct{ preempted, preemptedSlices, destroyed, destroyedSlices, addedFragmentation int }

func (p placementCost) less(q placementCost) bool {
	switch {
	case p.preempted != q.preempted:
		return p.preempted < q.preempted
	case p.preemptedSlices != q.preemptedSlices:
		return p.preemptedSlices < q.preemptedSlices
	case p.destroyed != q.destroyed:
		return p.destroyed < q.destroyed
	case p.destroyedSlices != q.destroyedSlices:
		return p.destroyedSlices < q.destroyedSlices
	default:
		return p.addedFragmentation < q.addedFragmentation
	}
}

// cheapestPlacement returns the cheapest placement of an instance of the profile. It may destroy or
// preempt instances up to the given use.
func (d *layoutDraft) cheapestPlacement(name v1alpha1.MIGProfile, upTo Use) (best Step, ok bool) {
	var least placementCost
	for i := range d.gpus {
		p, err := d.gpus[i].Model.Profile(name)
		if err != nil {
			continue
		}
		for k := range p.Starts {
			// For the smallest profile try the highest position first, so that it wins among equal
			// costs.
			start := p.Starts[k]
			if p.Memory == 1 {
				start = p.Starts[len(p.Starts)-1-k]
			}
			cost, may := d.costOf(i, p, start, upTo)
			if may && (!ok || cost.less(least)) {
				best, least, ok = Step{i, p, start}, cost, true
			}
		}
	}
	return best, ok
}

func (d *layoutDraft) costOf(gpu int, p *Profile, start int, upTo Use) (cost placementCost, may bool) {
	g := &d.gpus[gpu]
	mask := p.Mask(start)
	left := d.occupied[gpu]
	if left&mask != 0 {
		for i := range g.Instances {
			it := &g.Instances[i]
			if it.Mask()&mask == 0 {
				continue
			}
			switch {
			case it.Use > upTo:
				return placementCost{}, false
			case it.Use == Preemptible:
				cost.preempted++
				cost.preemptedSlices += it.Profile.Memory
			default:
				cost.destroyed++
				cost.destroyedSlices += it.Profile.Memory
			}
			left &^= it.Mask()
		}
	}
	if p.limited && !g.allowsProfile(p, mask) {
		return placementCost{}, false
	}
	waste := &g.Model.placements.fragmentation
	cost.addedFragmentation = int(waste[left|mask]) - int(waste[left])
	return cost, true
}

// place creates the instance and destroys the instances in its way.
func (d *layoutDraft) place(at Step) {
	g := &d.gpus[at.GPU]
	mask := at.Profile.Mask(at.Start)
	kept := g.Instances[:0]
	for _, it := range g.Instances {
		if it.Mask()&mask == 0 {
			kept = append(kept, it)
			continue
		}
		d.change.Destroy = append(d.change.Destroy, Step{at.GPU, it.Profile, it.Start})
	}
	g.Instances = append(kept, Instance{at.Profile, at.Start, InUse})
	d.occupied[at.GPU] = g.Occupied()
	d.change.Create = append(d.change.Create, at)
}
