// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mig is the geometry of MIG: what fits where on a board, and which
// small change makes room.
//
// Enters: a board, how its GPUs are cut and in use, and what is asked for.
// Leaves: the placement that harms later requests least, or the smallest change
// after which all that can fit does fit.
//
// It never does any I/O, and never moves what is in use. The placements, the
// identifiers and the sizes are those that NVML reports, as NVIDIA's MIG user guide
// and the tables of other projects have them; each board says where its own differ.
package mig

import (
	"math/bits"

	"sluice.dev/api/v1alpha1"
)

// Step is one instance that is made or destroyed.
type Step struct {
	// GPU is the index of the GPU among those that were given.
	GPU     int
	Profile *Profile
	Start   int
}

// Change is what turns one layout into another: first all is destroyed, then all is made.
type Change struct {
	Destroy, Create []Step
	// Unmet are the indices of the wants for which there is no room, though all that
	// is idle and that no other want takes were given up.
	Unmet []int
}

// IsEmpty tells whether there is nothing to do.
func (c *Change) IsEmpty() bool { return len(c.Destroy)+len(c.Create) == 0 }

// Plan is the smallest change after which there is an idle instance for each want,
// the first of them first: what is idle already is taken as it is, then what is
// free, then what idle instances give up. Nothing that anybody has is touched. A
// want's profile that a board does not have is not looked for there.
func Plan(gpus []GPU, wants []v1alpha1.MIGProfile) Change {
	d := newLayoutDraft(gpus)
	open := make([]int, 0, len(wants))
	for i, name := range wants {
		if !d.claimIdle(name) {
			open = append(open, i)
		}
	}
	for _, i := range open {
		if at, ok := d.cheapestPlacement(wants[i], Idle); ok {
			d.place(at)
		} else {
			d.change.Unmet = append(d.change.Unmet, i)
		}
	}
	return d.change
}

// Preempt is what has to leave so that one more instance of the profile has room,
// and false where nothing would help: the fewest of those that may be asked to,
// and of as many the fewest slices. Idle instances in the way are given up besides.
// The victims are among gpus[at.GPU].Instances, by their index.
func Preempt(gpus []GPU, want v1alpha1.MIGProfile) (at Step, victims []int, ok bool) {
	d := newLayoutDraft(gpus)
	found, ok := d.cheapestPlacement(want, Preemptible)
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

// layoutDraft is a layout that is being changed.
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

// claimIdle gives an idle instance of the profile to a want, on the GPU that is fullest.
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

// placementCost is what a place costs, in the order of what matters.
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

// cheapestPlacement is the cheapest place for an instance of the profile where everything in
// the way may be given up that far.
func (d *layoutDraft) cheapestPlacement(name v1alpha1.MIGProfile, upTo Use) (best Step, ok bool) {
	var least placementCost
	for i := range d.gpus {
		p, err := d.gpus[i].Model.Profile(name)
		if err != nil {
			continue
		}
		for k := range p.Starts {
			// The smallest profile is looked at from above, so that of equals the
			// highest is taken.
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
	if p.Attribute != "" && !g.allowsProfile(p, mask) {
		return placementCost{}, false
	}
	waste := &g.Model.placements.fragmentation
	cost.addedFragmentation = int(waste[left|mask]) - int(waste[left])
	return cost, true
}

// place makes the instance there, and destroys what is in its way.
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
