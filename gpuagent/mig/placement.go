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

// Use decides what may happen to an instance.
type Use uint8

// The uses in the order in which instances are given up.
const (
	// Idle: unused. It may be destroyed to make room.
	Idle Use = iota
	// Preemptible: used by a pod that may be preempted.
	Preemptible
	// InUse: in use, or its use is unknown. It stays.
	InUse
)

// Instance is a GPU instance at its place.
type Instance struct {
	Profile *Profile
	Start   int
	Use     Use
}

// GPU is a GPU in MIG mode.
type GPU struct {
	Model     *Model
	Instances []Instance
}

// Occupied returns the slices of all its instances.
func (g *GPU) Occupied() (taken Mask) {
	for i := range g.Instances {
		taken |= g.Instances[i].Mask()
	}
	return taken
}

// Mask returns its memory slices.
func (i *Instance) Mask() Mask { return i.Profile.Mask(i.Start) }

// Check returns nil for a possible layout: each instance at one of its profile's starts, without
// overlaps, and no profile more often than the model allows.
func (g *GPU) Check() error {
	var taken Mask
	count := map[*Profile]int{}
	for i := range g.Instances {
		it := &g.Instances[i]
		if it.Profile == nil || it.Profile.index >= len(g.Model.Profiles) || &g.Model.Profiles[it.Profile.index] != it.Profile {
			return fmt.Errorf("instance %d has no profile of %s", i, g.Model.Name)
		}
		if !slices.Contains(it.Profile.Starts, it.Start) {
			return fmt.Errorf("%s cannot start at %d on %s, only at %v", it.Profile.Name, it.Start, g.Model.Name, it.Profile.Starts)
		}
		if it.Mask()&taken != 0 {
			return fmt.Errorf("%s at %d overlaps another instance", it.Profile.Name, it.Start)
		}
		taken |= it.Mask()
		if count[it.Profile]++; count[it.Profile] > it.Profile.Max {
			return fmt.Errorf("%d instances of %s; %s has at most %d", count[it.Profile], it.Profile.Name, g.Model.Name, it.Profile.Max)
		}
		for j := range i {
			if other := &g.Instances[j]; it.Profile.Excludes(other.Profile) {
				return fmt.Errorf("%s@%d and %s@%d need the same media engines; a GPU has one set",
					other.Profile.Name, other.Start, it.Profile.Name, it.Start)
			}
		}
	}
	return nil
}

// allowsProfile reports whether the model allows another instance of the profile beside these. Some
// profiles, such as those with media engines, exist once.
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
		if p.Excludes(it.Profile) {
			return false
		}
	}
	return n < p.Max
}

// String returns the layout as people write it: 4g.40gb@0 3g.40gb@4.
func (g *GPU) String() string {
	sorted := slices.SortedFunc(slices.Values(g.Instances), func(a, b Instance) int { return cmp.Compare(a.Start, b.Start) })
	texts := make([]string, len(sorted))
	for i := range sorted {
		texts[i] = fmt.Sprintf("%s@%d", sorted[i].Profile.Name, sorted[i].Start)
	}
	return strings.Join(texts, " ")
}

// placementTable holds the best placements for each set of occupied slices. There are 256 such
// sets.
type placementTable struct {
	// fragmentation sums over the plain profiles the free slices that the profile cannot use. That
	// is the expected memory lost to the next request if each profile is equally likely.
	fragmentation [256]int16
	// best holds the least harmful placement of each profile.
	best [][256]placement
}

// placement is a start and its harm; the start is -1 if the profile does not fit.
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

// allSlices returns the model's memory slices.
func (b *Model) allSlices() Mask { return Mask(1<<b.Slices - 1) }

// usableSlices returns the slices that another instance of the profile could have.
func (b *Model) usableSlices(taken Mask, p *Profile) (usable Mask) {
	for _, start := range p.Starts {
		if p.Mask(start)&taken == 0 {
			usable |= p.Mask(start)
		}
	}
	return usable
}

// bestPlacement returns the place that leaves the GPU most useful. Among equals the smallest
// profile takes the highest, so that low slices stay together, and the others the lowest.
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

// isScored reports whether GPU shares can become the profile: it has no attribute, and memory in
// proportion to its compute slices.
func (b *Model) isScored(p *Profile) bool {
	return p.Attribute == "" && (p.Compute > 1 || p.Memory == 1)
}

// CanFit reports whether another instance of the profile fits beside the occupied slices.
func (b *Model) CanFit(taken Mask, p *Profile) bool {
	return b.placements.best[p.index][taken].start >= 0
}

// BestPlacement returns the start that harms later requests least, and false if the profile does
// not fit. The harm is the increase of the free slices that profiles cannot use, summed over the
// profiles. It is negative if the place was of little use.
func (b *Model) BestPlacement(taken Mask, p *Profile) (start, harm int, ok bool) {
	it := b.placements.best[p.index][taken]
	return int(it.start), int(it.addedFragmentation), it.start >= 0
}

// BestGPU returns the GPU among many of one model, given their occupied slices, that another
// instance of the profile harms least, and its start there. It returns false if none has room.
// Among equals the first wins.
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
