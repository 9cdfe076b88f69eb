// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import "math/bits"

// room is what is left of a board, for each set of its slices that may be taken.
// There are 256 such sets, so every question is a look-up.
type room struct {
	// waste is how many free slices the plain profiles cannot use, summed over them:
	// the expected free memory that is of no use to the next request, where each
	// profile is as likely.
	waste [256]int16
	// best has for each profile where another instance harms least.
	best [][256]place
}

// place is where an instance would stand and what harm it would do; the start is -1
// where it fits nowhere.
type place struct {
	start int8
	harm  int16
}

func newRoom(b *Board) *room {
	r := &room{best: make([][256]place, len(b.Profiles))}
	for taken := range r.waste {
		for i := range b.Profiles {
			if p := &b.Profiles[i]; b.counts(p) {
				r.waste[taken] += int16(bits.OnesCount8(uint8(b.all() &^ Mask(taken) &^ b.usable(Mask(taken), p))))
			}
		}
	}
	for taken := range r.waste {
		for i := range b.Profiles {
			r.best[i][taken] = r.leastHarm(Mask(taken), &b.Profiles[i])
		}
	}
	return r
}

// all are the board's memory slices.
func (b *Board) all() Mask { return Mask(1<<b.Slices - 1) }

// usable are the slices that some further instance of the profile could have.
func (b *Board) usable(taken Mask, p *Profile) (usable Mask) {
	for _, start := range p.Starts {
		if p.Mask(start)&taken == 0 {
			usable |= p.Mask(start)
		}
	}
	return usable
}

// leastHarm is the place of which the board is left most useful. Of equals the
// highest is taken for the smallest profile, so that low slices stay together, and the
// lowest for the others.
func (r *room) leastHarm(taken Mask, p *Profile) place {
	best := place{start: -1}
	for _, start := range p.Starts {
		if p.Mask(start)&taken != 0 {
			continue
		}
		harm := r.waste[taken|p.Mask(start)] - r.waste[taken]
		if best.start < 0 || harm < best.harm || harm == best.harm && p.Memory == 1 {
			best = place{int8(start), harm}
		}
	}
	return best
}

// counts tells whether a profile is one that shares become: without attributes, and
// with as much memory as its compute slices come with.
func (b *Board) counts(p *Profile) bool {
	return p.Attribute == "" && (p.Compute > 1 || p.Memory == 1)
}

// CanFit tells whether another instance of the profile fits beside what is taken.
func (b *Board) CanFit(taken Mask, p *Profile) bool { return b.room.best[p.at][taken].start >= 0 }

// Place is where an instance of the profile harms later requests least, and false
// where it fits nowhere. The harm is by how much the free slices become less
// useful: those that a profile cannot use, summed over the profiles; it is negative
// where it takes slices that were of little use.
func (b *Board) Place(taken Mask, p *Profile) (start, harm int, ok bool) {
	it := b.room.best[p.at][taken]
	return int(it.start), int(it.harm), it.start >= 0
}

// Choose is which of many GPUs of one board, by what is taken of each, is harmed
// least by another instance of the profile, and where on it; false where it fits on none.
// Of equals it is the first.
func (b *Board) Choose(taken []Mask, p *Profile) (gpu, start int, ok bool) {
	best, gpu := place{start: -1}, -1
	places := &b.room.best[p.at]
	for i, mask := range taken {
		if it := places[mask]; it.start >= 0 && (gpu < 0 || it.harm < best.harm) {
			gpu, best = i, it
		}
	}
	return gpu, int(best.start), gpu >= 0
}
