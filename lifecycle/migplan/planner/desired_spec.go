// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"slices"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// desiredSpec is how the node's GPUs shall be cut: those of the draft, those that could not be
// cut as was said before, as they are, and the others as was said.
func (d *draft) desiredSpec(at int) []v1alpha1.DesiredGPU {
	n := &d.nodes[at]
	cells := d.gpuDraftsOf(at)
	var spec []v1alpha1.DesiredGPU
	for i := range cells {
		c := &cells[i]
		before := c.gpu.desired
		switch {
		case c.changed && c.eligibility != eligibleByDrain:
			spec = append(spec, d.desiredGPU(n, c))
		case before == nil:
		case c.gpu.model != nil && c.gpu.differsFromSpec:
			spec = append(spec, currentSpec(c.gpu))
		default:
			spec = append(spec, *before.DeepCopy())
		}
	}
	slices.SortFunc(spec, func(a, b v1alpha1.DesiredGPU) int { return cmp.Compare(a.UUID, b.UUID) })
	return spec
}

// desiredGPU is the spec of a GPU that is changed.
func (d *draft) desiredGPU(n *node, c *gpuDraft) v1alpha1.DesiredGPU {
	want := v1alpha1.DesiredGPU{UUID: c.gpu.uuid, MIGEnabled: true, Instances: desiredInstances(c.gpu, c.instances)}
	if d.pools[n.pool].isStatic() {
		want.MIGEnabled = len(want.Instances) > 0
	}
	if want.MIGEnabled != c.gpu.migEnabled || c.gpu.resetPending {
		resets := d.pools[n.pool].resets
		want.MayReset = !c.gpu.model.migModel.ModeWithoutReset && (resets == v1alpha1.MIGResetsWhenIdle || resets == v1alpha1.MIGResetsDrain)
	}
	return want
}

// currentSpec is the spec that leaves a GPU as it is.
func currentSpec(g *gpu) v1alpha1.DesiredGPU {
	is := v1alpha1.DesiredGPU{UUID: g.uuid, MIGEnabled: g.migEnabled}
	if g.migEnabled {
		is.Instances = desiredInstances(g, g.instances)
	}
	return is
}

// desiredInstances are the instances for the spec, by start. Foreign ones are not in it.
func desiredInstances(g *gpu, instances []instance) []v1alpha1.DesiredInstance {
	var all []v1alpha1.DesiredInstance
	for i := range instances {
		if it := &instances[i]; g.foreign&it.Mask() == 0 {
			all = append(all, v1alpha1.DesiredInstance{Profile: g.model.driverName(it.Profile), Start: int32(it.Start)}) //nolint:gosec // at most 7
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.DesiredInstance) int { return cmp.Compare(a.Start, b.Start) })
	return all
}

// explainLoss says what a spec would take from pods that are bound to the node; empty for
// nothing. It is the last word before the spec is written, and asks in another way
// than the draft was made: of each profile that such pods ask for as many must be
// left as there are, or as they ask for.
func (d *draft) explainLoss(at int, spec []v1alpha1.DesiredGPU) string {
	n := &d.nodes[at]
	asked := map[v1alpha1.MIGProfile]int{}
	for i := range n.boundPods {
		for _, a := range n.boundPods[i].instanceRequests {
			asked[a.profile] += a.count
		}
	}
	for name, count := range asked {
		there, left := 0, 0
		for i := range n.observed.gpus {
			g := &n.observed.gpus[i]
			if g.model == nil || g.model.resolveProfile(name) == nil {
				continue
			}
			p := g.model.resolveProfile(name)
			t, l := countInstances(g, p, spec)
			there, left = there+t, left+l
		}
		if left < min(there, count) {
			return fmt.Sprintf("pods bound to it need %d of %s, and %d would be left", count, name, left)
		}
	}
	return ""
}

// countInstances is how many instances of a profile a GPU has, and will have by a spec.
func countInstances(g *gpu, p *mig.Profile, spec []v1alpha1.DesiredGPU) (there, left int) {
	ours := 0
	for i := range g.instances {
		if it := &g.instances[i]; it.Profile == p {
			there++
			if g.foreign&it.Mask() == 0 {
				ours++
			}
		}
	}
	at := slices.IndexFunc(spec, func(d v1alpha1.DesiredGPU) bool { return d.UUID == g.uuid })
	if at < 0 {
		return there, there
	}
	left = there - ours
	for _, it := range spec[at].Instances {
		if found, err := g.model.migModel.Profile(it.Profile); err == nil && found == p {
			left++
		}
	}
	return there, left
}
