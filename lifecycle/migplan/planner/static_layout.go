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

// planStaticPools cuts the GPUs of static pools as their layout says, in the draft. What
// is in use stays where it is; idle instances stay where they can.
func (d *draft) planStaticPools() {
	for at := range d.nodes {
		p := &d.pools[d.nodes[at].pool]
		w := &d.nodeDrafts[at]
		if !p.isStatic() || w.stage == stageClosed || w.stage == stageFinishing {
			continue
		}
		cells := d.gpuDraftsOf(at)
		for i := range cells {
			c := &cells[i]
			entry, ok := layoutEntryFor(p.layout, c.gpu)
			if !ok || c.gpu.model == nil {
				continue
			}
			if err := d.applyLayout(w, c, entry); err != "" {
				d.impossibleLayouts[d.nodes[at].pool] = append(d.impossibleLayouts[d.nodes[at].pool],
					fmt.Sprintf("GPU %d of node %s (%s) %s", c.gpu.index, d.nodes[at].name, c.gpu.model.migModel.Name, err))
			}
		}
	}
}

// layoutEntryFor is the first entry of a layout that holds for a GPU.
func layoutEntryFor(layout []v1alpha1.MIGLayout, g *gpu) (*v1alpha1.MIGLayout, bool) {
	for i := range layout {
		entry := &layout[i]
		if len(entry.DeviceFilter) > 0 && !slices.ContainsFunc(entry.DeviceFilter, func(id string) bool { return strings.EqualFold(id, g.deviceID) }) {
			continue
		}
		if len(entry.Devices) > 0 && !slices.Contains(entry.Devices, g.index) {
			continue
		}
		return entry, true
	}
	return nil, false
}

// applyLayout cuts one GPU, and says why it cannot; empty where it can or is so already.
func (d *draft) applyLayout(w *nodeDraft, c *gpuDraft, entry *v1alpha1.MIGLayout) string {
	enabled := entry.MIGEnabled == nil || *entry.MIGEnabled
	if !enabled {
		return d.disableMIG(w, c)
	}
	counts, err := parseProfileCounts(c.gpu.model, entry.MIGDevices)
	if err != "" {
		return err
	}
	if _, left, fits := fillGPU(c.gpu.model.migModel, nil, counts); !fits {
		return fmt.Sprintf("cannot be cut into %s: there is no room for %s", formatLayout(entry.MIGDevices), left.Name)
	}
	if c.gpu.migEnabled && hasCounts(c.instances, counts) {
		return ""
	}
	if c.eligibility == notEligible {
		return d.ineligibleReason(c)
	}
	for _, keepIdle := range []bool{true, false} {
		kept, rest := splitKept(c.instances, counts, keepIdle)
		made, _, fits := fillGPU(c.gpu.model.migModel, kept, rest)
		if !fits {
			continue
		}
		c.instances, c.cloned, c.changed = made, true, true
		c.updateMasks()
		if c.eligibility == eligibleByDrain {
			w.draining = true
		} else {
			w.changed = true
		}
		return ""
	}
	return "waits until pods end that have instances which the layout has no place for"
}

// disableMIG takes the GPU out of MIG mode once nobody has an instance of it.
func (d *draft) disableMIG(w *nodeDraft, c *gpuDraft) string {
	switch {
	case !c.gpu.migEnabled && !c.gpu.resetPending:
		return ""
	case c.inUse != 0:
		return "waits until the pods end that have its instances"
	case c.eligibility == notEligible:
		return d.ineligibleReason(c)
	case !c.gpu.model.migModel.ModeWithoutReset && d.pools[d.nodes[c.node].pool].resets != v1alpha1.MIGResetsWhenIdle && d.pools[d.nodes[c.node].pool].resets != v1alpha1.MIGResetsDrain:
		return "leaves MIG mode only by a reset, which spec.mig.resets does not allow"
	}
	c.instances, c.cloned, c.changed = nil, true, true
	c.updateMasks()
	w.changed = true
	return ""
}

// ineligibleReason is why nothing is cut on a GPU, for people.
func (d *draft) ineligibleReason(c *gpuDraft) string {
	g := c.gpu
	switch {
	case g.model == nil:
		return g.unusableReason
	case d.previousState.gpuBackoff[g.uuid].until.After(d.now):
		d.requeueAt(d.previousState.gpuBackoff[g.uuid].until)
		return "could not be cut as asked and is tried again later: " + d.nodes[c.node].observed.message
	case g.migEnabled && g.resetPending:
		return "leaves MIG mode at its next reset"
	case !g.migEnabled && g.wholeHolders > 0:
		return "is not in MIG mode, and a pod has it as a whole"
	case !g.migEnabled && !g.model.migModel.ModeWithoutReset:
		return "is not in MIG mode, which only a reset changes: enable it (nvidia-smi -i " + strconv.Itoa(int(g.index)) + " -mig 1) and reset the GPU, or set spec.mig.resets to WhenIdle or Drain"
	case g.differsFromSpec:
		return "is being cut by its agent"
	}
	return "cannot be changed now"
}

// profileCounts are how many instances of each profile there shall be.
type profileCounts map[*mig.Profile]int

func parseProfileCounts(k *driverModel, devices map[v1alpha1.MIGProfile]int32) (profileCounts, string) {
	all := profileCounts{}
	for name, n := range devices {
		p, err := k.migModel.Profile(name)
		if err != nil {
			return nil, "cannot be cut into " + string(name) + ": " + err.Error()
		}
		all[p] += int(n)
	}
	return all, ""
}

// hasCounts tells whether the instances are as many as counted, wherever they are.
func hasCounts(instances []instance, want profileCounts) bool {
	have := profileCounts{}
	for i := range instances {
		have[instances[i].Profile]++
	}
	return maps.Equal(have, want)
}

// splitKept are the instances that stay, and what is still to be made. What is in use
// stays; what is idle where it is wanted and keepIdle says so.
func splitKept(instances []instance, want profileCounts, keepIdle bool) (kept []instance, rest profileCounts) {
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

// fillGPU places what is to be made beside what is kept, the largest first, each where it
// harms least of the places that leave room for the others; where it does not fit, the
// first for which there is no room.
func fillGPU(board *mig.Model, kept []instance, rest profileCounts) (all []instance, left *mig.Profile, fits bool) {
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
	made, ok := searchPlacements(board, taken, open, 0, &reached)
	if !ok {
		return nil, open[min(reached, len(open)-1)], false
	}
	return append(slices.Clone(kept), made...), nil, true
}

func searchPlacements(board *mig.Model, taken mig.Mask, open []*mig.Profile, depth int, reached *int) ([]instance, bool) {
	*reached = max(*reached, depth)
	if len(open) == 0 {
		return nil, true
	}
	p := open[0]
	starts := slices.Clone(p.Starts)
	if best, _, ok := board.BestPlacement(taken, p); ok { // it is tried first
		starts = append([]int{best}, slices.DeleteFunc(starts, func(s int) bool { return s == best })...)
	}
	for _, start := range starts {
		mask := p.Mask(start)
		if mask&taken != 0 {
			continue
		}
		if more, ok := searchPlacements(board, taken|mask, open[1:], depth+1, reached); ok {
			it := instance{Instance: mig.Instance{Profile: p, Start: start}}
			return append([]instance{it}, more...), true
		}
	}
	return nil, false
}

// formatLayout are devices as people write them: 1g.10gb: 2, 3g.40gb: 1.
func formatLayout(devices map[v1alpha1.MIGProfile]int32) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		texts = append(texts, fmt.Sprintf("%s: %d", name, devices[name]))
	}
	return strings.Join(texts, ", ")
}
