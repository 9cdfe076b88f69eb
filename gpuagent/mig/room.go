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
	// starts has for each profile the starts at which an instance still fits.
	starts [][256]Mask
}

func newRoom(b *Board) *room {
	r := &room{starts: make([][256]Mask, len(b.Profiles))}
	all := b.all()
	for taken := range 256 {
		free := all &^ Mask(taken)
		for i := range b.Profiles {
			p := &b.Profiles[i]
			var usable Mask
			for _, start := range p.Starts {
				if p.mask(start)&^free == 0 {
					r.starts[i][taken] |= 1 << start
					usable |= p.mask(start)
				}
			}
			if b.counts(p) {
				r.waste[taken] += int16(bits.OnesCount8(uint8(free &^ usable)))
			}
		}
	}
	return r
}

// all are the board's memory slices.
func (b *Board) all() Mask { return Mask(1<<b.Slices - 1) }

// counts tells whether a profile is one that shares become: without attributes, and
// with as much memory as its compute slices come with.
func (b *Board) counts(p *Profile) bool {
	return p.Attribute == "" && (p.Compute > 1 || p.Memory == 1)
}

// CanFit tells whether another instance of the profile fits beside what is taken.
func (b *Board) CanFit(taken Mask, p *Profile) bool {
	return b.room.starts[p.at][taken] != 0
}

// Place is where an instance of the profile harms later requests least, and false where it
// fits nowhere. Of equals the highest start is taken for the smallest profile, so
// that low slices stay together, and the lowest for the others.
func (b *Board) Place(taken Mask, p *Profile) (start int, ok bool) {
	best := -1
	for left := b.room.starts[p.at][taken]; left != 0; left &= left - 1 {
		at := bits.TrailingZeros8(uint8(left))
		waste := int(b.room.waste[taken|p.mask(at)])
		if best < 0 || waste < best || waste == best && p.Memory == 1 {
			start, best = at, waste
		}
	}
	return start, best >= 0
}

// Harm is by how much an instance there makes what stays free less useful: the
// free slices that a profile cannot use, summed over the profiles. It is negative where the
// instance takes slices that were of no use.
func (b *Board) Harm(taken Mask, p *Profile, start int) int {
	return int(b.room.waste[taken|p.mask(start)]) - int(b.room.waste[taken])
}
