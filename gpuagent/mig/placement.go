// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Use says what may become of an instance.
type Use uint8

// The uses, from the one that is given up most easily.
const (
	// Idle: nobody has it. It may be destroyed when its room is needed.
	Idle Use = iota
	// Preemptible: somebody has it who may be asked to leave.
	Preemptible
	// InUse: somebody has it, or nobody knows. It is never touched.
	InUse
)

// Instance is a GPU instance at its place.
type Instance struct {
	Profile *Profile
	Start   int
	Use     Use
}

// GPU is one that is cut.
type GPU struct {
	Model     *Model
	Instances []Instance
}

// Occupied are the slices of all its instances.
func (g *GPU) Occupied() (taken Mask) {
	for i := range g.Instances {
		taken |= g.Instances[i].Mask()
	}
	return taken
}

// Mask are its memory slices.
func (i *Instance) Mask() Mask { return i.Profile.Mask(i.Start) }

// Check is nil where the GPU can be cut so: each instance at one of its profile's
// starts, none over another, none more often than the board allows.
func (g *GPU) Check() error {
	var taken Mask
	media := 0
	count := map[*Profile]int{}
	for i := range g.Instances {
		it := &g.Instances[i]
		if it.Profile == nil || it.Profile.index >= len(g.Model.Profiles) || &g.Model.Profiles[it.Profile.index] != it.Profile {
			return fmt.Errorf("instance %d is of no profile of %s", i, g.Model.Name)
		}
		if !slices.Contains(it.Profile.Starts, it.Start) {
			return fmt.Errorf("%s cannot start at %d on %s, but at %v", it.Profile.Name, it.Start, g.Model.Name, it.Profile.Starts)
		}
		if it.Mask()&taken != 0 {
			return fmt.Errorf("%s at %d overlaps another instance", it.Profile.Name, it.Start)
		}
		taken |= it.Mask()
		if count[it.Profile]++; count[it.Profile] > it.Profile.Max {
			return fmt.Errorf("%d instances of %s; %s has at most %d", count[it.Profile], it.Profile.Name, g.Model.Name, it.Profile.Max)
		}
		if it.Profile.Attribute == mediaEngines {
			if media++; media > 1 {
				return fmt.Errorf("%d instances with the media engines (%s); a GPU has them once", media, mediaEngines)
			}
		}
	}
	return nil
}

// mediaEngines is the attribute of an instance that has all of them: one alone can.
const mediaEngines = "+me"

// allowsProfile tells whether the board allows another instance of the profile beside these:
// some, such as those with the media engines, there is only one of.
func (g *GPU) allowsProfile(p *Profile, without Mask) bool {
	n := 0
	for i := range g.Instances {
		it := &g.Instances[i]
		if it.Mask()&without != 0 {
			continue
		}
		if it.Profile == p {
			n++
		}
		if p.Attribute == mediaEngines && it.Profile.Attribute == mediaEngines {
			return false
		}
	}
	return n < p.Max
}

// String is the layout as people write it: 4g.40gb@0 3g.40gb@4.
func (g *GPU) String() string {
	sorted := slices.SortedFunc(slices.Values(g.Instances), func(a, b Instance) int { return cmp.Compare(a.Start, b.Start) })
	texts := make([]string, len(sorted))
	for i := range sorted {
		texts[i] = fmt.Sprintf("%s@%d", sorted[i].Profile.Name, sorted[i].Start)
	}
	return strings.Join(texts, " ")
}

// placementTable is what is left of a board, for each set of its slices that may be taken.
// There are 256 such sets, so every question is a look-up.
type placementTable struct {
	// fragmentation is how many free slices the plain profiles cannot use, summed over them:
	// the expected free memory that is of no use to the next request, where each
	// profile is as likely.
	fragmentation [256]int16
	// best has for each profile where another instance harms least.
	best [][256]placement
}

// placement is where an instance would stand and what harm it would do; the start is -1
// where it fits nowhere.
type placement struct {
	start              int8
	addedFragmentation int16
}

func newPlacementTable(b *Model) *placementTable {
	r := &placementTable{best: make([][256]placement, len(b.Profiles))}
	for taken := range r.fragmentation {
		for i := range b.Profiles {
			if p := &b.Profiles[i]; b.isScored(p) {
				r.fragmentation[taken] += int16(bits.OnesCount8(uint8(b.allSlices() &^ Mask(taken) &^ b.usableSlices(Mask(taken), p))))
			}
		}
	}
	for taken := range r.fragmentation {
		for i := range b.Profiles {
			r.best[i][taken] = r.bestPlacement(Mask(taken), &b.Profiles[i])
		}
	}
	return r
}

// allSlices are the board's memory slices.
func (b *Model) allSlices() Mask { return Mask(1<<b.Slices - 1) }

// usableSlices are the slices that some further instance of the profile could have.
func (b *Model) usableSlices(taken Mask, p *Profile) (usable Mask) {
	for _, start := range p.Starts {
		if p.Mask(start)&taken == 0 {
			usable |= p.Mask(start)
		}
	}
	return usable
}

// bestPlacement is the place of which the board is left most useful. Of equals the
// highest is taken for the smallest profile, so that low slices stay together, and the
// lowest for the others.
func (r *placementTable) bestPlacement(taken Mask, p *Profile) placement {
	best := placement{start: -1}
	for _, start := range p.Starts {
		if p.Mask(start)&taken != 0 {
			continue
		}
		harm := r.fragmentation[taken|p.Mask(start)] - r.fragmentation[taken]
		if best.start < 0 || harm < best.addedFragmentation || harm == best.addedFragmentation && p.Memory == 1 {
			best = placement{int8(start), harm}
		}
	}
	return best
}

// isScored tells whether a profile is one that shares become: without attributes, and
// with as much memory as its compute slices come with.
func (b *Model) isScored(p *Profile) bool {
	return p.Attribute == "" && (p.Compute > 1 || p.Memory == 1)
}

// CanFit tells whether another instance of the profile fits beside what is taken.
func (b *Model) CanFit(taken Mask, p *Profile) bool {
	return b.placements.best[p.index][taken].start >= 0
}

// BestPlacement is where an instance of the profile harms later requests least, and false
// where it fits nowhere. The harm is by how much the free slices become less
// useful: those that a profile cannot use, summed over the profiles; it is negative
// where it takes slices that were of little use.
func (b *Model) BestPlacement(taken Mask, p *Profile) (start, harm int, ok bool) {
	it := b.placements.best[p.index][taken]
	return int(it.start), int(it.addedFragmentation), it.start >= 0
}

// BestGPU is which of many GPUs of one board, by what is taken of each, is harmed
// least by another instance of the profile, and where on it; false where it fits on none.
// Of equals it is the first.
func (b *Model) BestGPU(taken []Mask, p *Profile) (gpu, start int, ok bool) {
	best, gpu := placement{start: -1}, -1
	places := &b.placements.best[p.index]
	for i, mask := range taken {
		if it := places[mask]; it.start >= 0 && (gpu < 0 || it.addedFragmentation < best.addedFragmentation) {
			gpu, best = i, it
		}
	}
	return gpu, int(best.start), gpu >= 0
}
