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

// planStaticPools applies the layout of static pools to their GPUs in the draft. Instances in
// use keep their place; idle ones keep it where possible.
func (d *draft) planStaticPools() {
	for at := range d.nodes {
		p := &d.pools[d.nodes[at].pool]
		w := &d.nodeDrafts[at]
		if !p.isStatic() || w.stage == stageClosed || w.stage == stageFinishing {
			continue
		}
		drafts := d.gpuDraftsOf(at)
		for i := range drafts {
			c := &drafts[i]
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

// layoutEntryFor returns the first entry of a layout that matches a GPU.
func layoutEntryFor(layout []v1alpha1.MIGLayout, g *gpu) (*v1alpha1.MIGLayout, bool) {
	for i := range layout {
		entry := &layout[i]
		if len(entry.DeviceFilter) > 0 &&
			!slices.ContainsFunc(entry.DeviceFilter, func(id string) bool { return strings.EqualFold(id, g.deviceID) }) {
			continue
		}
		if len(entry.Devices) > 0 && !slices.Contains(entry.Devices, g.index) {
			continue
		}
		return entry, true
	}
	return nil, false
}

// applyLayout applies an entry to one GPU. It returns why that is impossible; empty otherwise.
func (d *draft) applyLayout(w *nodeDraft, c *gpuDraft, entry *v1alpha1.MIGLayout) string {
	enabled := entry.MIGEnabled == nil || *entry.MIGEnabled
	if !enabled {
		return d.disableMIG(w, c)
	}
	counts, err := parseProfileCounts(c.gpu.model, entry.MIGDevices)
	if err != "" {
		return err
	}
	if _, missing, fits := fillGPU(c.gpu.model.migModel, nil, counts); !fits {
		return fmt.Sprintf("cannot be partitioned into %s: no room for %s", formatLayout(entry.MIGDevices), missing.Name)
	}
	if c.gpu.migEnabled && hasCounts(c.instances, counts) {
		return ""
	}
	if c.eligibility == notEligible {
		return d.ineligibleReason(c)
	}
	for _, keepIdle := range []bool{true, false} {
		kept, rest := splitKept(c.instances, counts, keepIdle)
		created, _, fits := fillGPU(c.gpu.model.migModel, kept, rest)
		if !fits {
			continue
		}
		c.instances, c.cloned, c.changed = created, true, true
		c.updateMasks()
		if c.eligibility == eligibleByDrain {
			w.draining = true
		} else {
			w.changed = true
		}
		return ""
	}
	return "waits for pods to end whose instances do not fit into the layout"
}

// disableMIG disables MIG mode once no pod holds an instance of the GPU.
func (d *draft) disableMIG(w *nodeDraft, c *gpuDraft) string {
	switch {
	case !c.gpu.migEnabled && !c.gpu.resetPending:
		return ""
	case c.inUse != 0:
		return "waits for the pods to end that hold its instances"
	case c.eligibility == notEligible:
		return d.ineligibleReason(c)
	case !c.gpu.model.migModel.ModeWithoutReset && !d.pools[d.nodes[c.node].pool].mayReset():
		return "leaves MIG mode only by a reset, which spec.mig.resets does not allow"
	}
	c.instances, c.cloned, c.changed = nil, true, true
	c.updateMasks()
	w.changed = true
	return ""
}

// ineligibleReason returns why a GPU keeps its layout, for a condition.
func (d *draft) ineligibleReason(c *gpuDraft) string {
	g := c.gpu
	switch {
	case g.model == nil:
		return g.unusableReason
	case d.previousState.gpuBackoff[g.uuid].until.After(d.now):
		d.requeueAt(d.previousState.gpuBackoff[g.uuid].until)
		return "could not be repartitioned and will be retried: " + d.previousState.gpuBackoff[g.uuid].reason
	case g.migEnabled && g.resetPending:
		return "leaves MIG mode at its next reset"
	case !g.migEnabled && g.wholeHolders > 0:
		return "is not in MIG mode, and a pod holds it as a whole"
	case !g.migEnabled && !g.model.migModel.ModeWithoutReset:
		return "is not in MIG mode, which only a reset changes: enable it (nvidia-smi -i " + strconv.Itoa(int(g.index)) +
			" -mig 1) and reset the GPU, or set spec.mig.resets to WhenIdle or Drain"
	case g.differsFromSpec:
		return "is being repartitioned by its agent"
	}
	return "cannot be repartitioned now"
}

// profileCounts counts instances by profile.
type profileCounts map[*mig.Profile]int

func parseProfileCounts(k *driverModel, devices map[v1alpha1.MIGProfile]int32) (profileCounts, string) {
	all := profileCounts{}
	for name, n := range devices {
		p, err := k.migModel.Profile(name)
		if err != nil {
			return nil, "cannot be partitioned into " + string(name) + ": " + err.Error()
		}
		all[p] += int(n)
	}
	return all, ""
}

// hasCounts reports whether the instances have these counts, regardless of placement.
func hasCounts(instances []instance, desired profileCounts) bool {
	have := profileCounts{}
	for i := range instances {
		have[instances[i].Profile]++
	}
	return maps.Equal(have, desired)
}

// splitKept returns the instances to keep and the counts to create. It keeps instances in use,
// and with keepIdle also idle ones that the layout needs.
func splitKept(instances []instance, desired profileCounts, keepIdle bool) (kept []instance, rest profileCounts) {
	rest = maps.Clone(desired)
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

// fillGPU places the instances to create beside the kept ones, the largest first, each at the
// least harmful start that leaves room for the others. If they do not fit it returns the first
// profile without room.
func fillGPU(model *mig.Model, kept []instance, rest profileCounts) (all []instance, missing *mig.Profile, fits bool) {
	var remaining []*mig.Profile
	for i := len(model.Profiles) - 1; i >= 0; i-- {
		p := &model.Profiles[i]
		existing := 0
		for k := range kept {
			if kept[k].Profile == p {
				existing++
			}
		}
		if rest[p] > 0 && existing+rest[p] > p.Max {
			return nil, p, false
		}
		for range rest[p] {
			remaining = append(remaining, p)
		}
	}
	var occupied mig.Mask
	for i := range kept {
		occupied |= kept[i].Mask()
	}
	deepest := 0
	created, ok := searchPlacements(model, occupied, remaining, 0, &deepest)
	if !ok {
		return nil, remaining[min(deepest, len(remaining)-1)], false
	}
	all = append(slices.Clone(kept), created...)
	// The kept ones are a possible layout.
	if len(created) > 0 && (&mig.GPU{Model: model, Instances: migInstances(all)}).Check() != nil {
		return nil, remaining[0], false
	}
	return all, nil, true
}

func searchPlacements(model *mig.Model, occupied mig.Mask, remaining []*mig.Profile, depth int, deepest *int) ([]instance, bool) {
	*deepest = max(*deepest, depth)
	if len(remaining) == 0 {
		return nil, true
	}
	p := remaining[0]
	starts := slices.Clone(p.Starts)
	if best, _, ok := model.BestPlacement(occupied, p); ok { // try it first
		starts = append([]int{best}, slices.DeleteFunc(starts, func(s int) bool { return s == best })...)
	}
	for _, start := range starts {
		mask := p.Mask(start)
		if mask&occupied != 0 {
			continue
		}
		if more, ok := searchPlacements(model, occupied|mask, remaining[1:], depth+1, deepest); ok {
			it := instance{Instance: mig.Instance{Profile: p, Start: start}}
			return append([]instance{it}, more...), true
		}
	}
	return nil, false
}

// formatLayout formats a layout as in the spec: 1g.10gb: 2, 3g.40gb: 1.
func formatLayout(devices map[v1alpha1.MIGProfile]int32) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		texts = append(texts, fmt.Sprintf("%s: %d", name, devices[name]))
	}
	return strings.Join(texts, ", ")
}
