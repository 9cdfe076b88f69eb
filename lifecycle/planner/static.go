// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// layoutStatic cuts the GPUs of static pools as their layout says, in the draft. What
// is in use stays where it is; idle instances stay where they can.
func (d *draft) layoutStatic() {
	for at := range d.nodes {
		p := &d.pools[d.nodes[at].pool]
		w := &d.work[at]
		if !p.static() || w.stage == closed || w.stage == finishing {
			continue
		}
		cells := d.cellsOf(at)
		for i := range cells {
			c := &cells[i]
			entry, ok := entryFor(p.layout, c.gpu)
			if !ok || c.gpu.kind == nil {
				continue
			}
			if err := d.layoutCell(w, c, entry); err != "" {
				d.impossible[d.nodes[at].pool] = append(d.impossible[d.nodes[at].pool],
					fmt.Sprintf("GPU %d of node %s (%s) %s", c.gpu.index, d.nodes[at].name, c.gpu.kind.board.Name, err))
			}
		}
	}
}

// entryFor is the first entry of a layout that holds for a GPU.
func entryFor(layout []v1alpha1.MIGLayout, g *gpu) (*v1alpha1.MIGLayout, bool) {
	for i := range layout {
		entry := &layout[i]
		if len(entry.DeviceFilter) > 0 && !slices.ContainsFunc(entry.DeviceFilter, func(id string) bool { return strings.EqualFold(id, g.device) }) {
			continue
		}
		if len(entry.Devices) > 0 && !slices.Contains(entry.Devices, g.index) {
			continue
		}
		return entry, true
	}
	return nil, false
}

// layoutCell cuts one GPU, and says why it cannot; empty where it can or is so already.
func (d *draft) layoutCell(w *work, c *cell, entry *v1alpha1.MIGLayout) string {
	enabled := entry.MIGEnabled == nil || *entry.MIGEnabled
	if !enabled {
		return d.unlayout(w, c)
	}
	counts, err := countsOf(c.gpu.kind, entry.MIGDevices)
	if err != "" {
		return err
	}
	if _, left, fits := fill(c.gpu.kind.board, nil, counts); !fits {
		return fmt.Sprintf("cannot be cut into %s: there is no room for %s", words(entry.MIGDevices), left.Name)
	}
	if c.gpu.enabled && matches(c.instances, counts) {
		return ""
	}
	if c.tier == never {
		return d.whyNever(c)
	}
	for _, keepIdle := range []bool{true, false} {
		kept, rest := keeping(c.instances, counts, keepIdle)
		made, _, fits := fill(c.gpu.kind.board, kept, rest)
		if !fits {
			continue
		}
		c.instances, c.owned, c.changed = made, true, true
		c.weigh()
		if c.tier == byDrain {
			w.draining = true
		} else {
			w.changed = true
		}
		return ""
	}
	return "waits until pods end that have instances which the layout has no place for"
}

// unlayout takes the GPU out of MIG mode once nobody has an instance of it.
func (d *draft) unlayout(w *work, c *cell) string {
	switch {
	case !c.gpu.enabled && !c.gpu.unreset:
		return ""
	case c.held != 0:
		return "waits until the pods end that have its instances"
	case c.tier == never:
		return d.whyNever(c)
	case !c.gpu.kind.board.ModeAtOnce && d.pools[d.nodes[c.at].pool].resets != v1alpha1.MIGResetsWhenIdle && d.pools[d.nodes[c.at].pool].resets != v1alpha1.MIGResetsDrain:
		return "leaves MIG mode only by a reset, which spec.mig.resets does not allow"
	}
	c.instances, c.owned, c.changed = nil, true, true
	c.weigh()
	w.changed = true
	return ""
}

// whyNever is why nothing is cut on a GPU, for people.
func (d *draft) whyNever(c *cell) string {
	g := c.gpu
	switch {
	case g.kind == nil:
		return g.why
	case d.past.distrusted[g.uuid].until.After(d.now):
		d.wake(d.past.distrusted[g.uuid].until)
		return "could not be cut as asked and is tried again later: " + d.nodes[c.at].machine.message
	case g.enabled && g.unreset:
		return "leaves MIG mode at its next reset"
	case !g.enabled && g.holders > 0:
		return "is not in MIG mode, and a pod has it as a whole"
	case !g.enabled && !g.kind.board.ModeAtOnce:
		return "is not in MIG mode, which only a reset changes: enable it (nvidia-smi -i " + strconv.Itoa(int(g.index)) + " -mig 1) and reset the GPU, or set spec.mig.resets to WhenIdle or Drain"
	case g.differs:
		return "is being cut by its agent"
	}
	return "cannot be changed now"
}

// counts are how many instances of each profile there shall be.
type counts map[*mig.Profile]int

func countsOf(k *kind, devices map[v1alpha1.MIGProfile]int32) (counts, string) {
	all := counts{}
	for name, n := range devices {
		p, err := k.board.Named(name)
		if err != nil {
			return nil, "cannot be cut into " + string(name) + ": " + err.Error()
		}
		all[p] += int(n)
	}
	return all, ""
}

// matches tells whether the instances are as many as counted, wherever they are.
func matches(instances []instance, want counts) bool {
	have := counts{}
	for i := range instances {
		have[instances[i].Profile]++
	}
	return maps.Equal(have, want)
}

// keeping are the instances that stay, and what is still to be made. What is in use
// stays; what is idle where it is wanted and keepIdle says so.
func keeping(instances []instance, want counts, keepIdle bool) (kept []instance, rest counts) {
	rest = maps.Clone(want)
	for _, inUse := range []bool{true, false} {
		for i := range instances {
			it := instances[i]
			if (it.Use != mig.Idle) != inUse {
				continue
			}
			if inUse || keepIdle && rest[it.Profile] > 0 {
				kept = append(kept, it)
				rest[it.Profile] = max(0, rest[it.Profile]-1)
			}
		}
	}
	return kept, rest
}

// fill places what is to be made beside what is kept, the largest first, each where it
// harms least of the places that leave room for the others; where it does not fit, the
// first for which there is no room.
func fill(board *mig.Board, kept []instance, rest counts) (all []instance, left *mig.Profile, fits bool) {
	var open []*mig.Profile
	for i := len(board.Profiles) - 1; i >= 0; i-- {
		p := &board.Profiles[i]
		there := 0
		for k := range kept {
			if kept[k].Profile == p {
				there++
			}
		}
		if rest[p] > 0 && there+rest[p] > p.Max {
			return nil, p, false
		}
		for range rest[p] {
			open = append(open, p)
		}
	}
	var taken mig.Mask
	for i := range kept {
		taken |= kept[i].Mask()
	}
	reached := 0
	made, ok := search(board, taken, open, 0, &reached)
	if !ok {
		return nil, open[min(reached, len(open)-1)], false
	}
	return append(slices.Clone(kept), made...), nil, true
}

func search(board *mig.Board, taken mig.Mask, open []*mig.Profile, depth int, reached *int) ([]instance, bool) {
	*reached = max(*reached, depth)
	if len(open) == 0 {
		return nil, true
	}
	p := open[0]
	starts := slices.Clone(p.Starts)
	if best, _, ok := board.Place(taken, p); ok { // it is tried first
		starts = append([]int{best}, slices.DeleteFunc(starts, func(s int) bool { return s == best })...)
	}
	for _, start := range starts {
		mask := p.Mask(start)
		if mask&taken != 0 {
			continue
		}
		if more, ok := search(board, taken|mask, open[1:], depth+1, reached); ok {
			it := instance{Instance: mig.Instance{Profile: p, Start: start}}
			return append([]instance{it}, more...), true
		}
	}
	return nil, false
}

// words are devices as people write them: 1g.10gb: 2, 3g.40gb: 1.
func words(devices map[v1alpha1.MIGProfile]int32) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		texts = append(texts, fmt.Sprintf("%s: %d", name, devices[name]))
	}
	return strings.Join(texts, ", ")
}
