// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"cmp"
	"fmt"
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
	Board     *Board
	Instances []Instance
}

// Taken are the slices of all its instances.
func (g *GPU) Taken() (taken Mask) {
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
		if it.Profile == nil || it.Profile.at >= len(g.Board.Profiles) || &g.Board.Profiles[it.Profile.at] != it.Profile {
			return fmt.Errorf("instance %d is of no profile of %s", i, g.Board.Name)
		}
		if !slices.Contains(it.Profile.Starts, it.Start) {
			return fmt.Errorf("%s cannot start at %d on %s, but at %v", it.Profile.Name, it.Start, g.Board.Name, it.Profile.Starts)
		}
		if it.Mask()&taken != 0 {
			return fmt.Errorf("%s at %d overlaps another instance", it.Profile.Name, it.Start)
		}
		taken |= it.Mask()
		if count[it.Profile]++; count[it.Profile] > it.Profile.Max {
			return fmt.Errorf("%d instances of %s; %s has at most %d", count[it.Profile], it.Profile.Name, g.Board.Name, it.Profile.Max)
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

// allows tells whether the board allows another instance of the profile beside these:
// some, such as those with the media engines, there is only one of.
func (g *GPU) allows(p *Profile, without Mask) bool {
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
