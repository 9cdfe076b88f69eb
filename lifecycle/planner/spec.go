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

// spec is how the node's GPUs shall be cut: those of the draft, those that could not be
// cut as was said before, as they are, and the others as was said.
func (d *draft) spec(at int) []v1alpha1.DesiredGPU {
	n := &d.nodes[at]
	cells := d.cellsOf(at)
	var spec []v1alpha1.DesiredGPU
	for i := range cells {
		c := &cells[i]
		before := c.gpu.desired
		switch {
		case c.changed && c.tier != byDrain:
			spec = append(spec, d.desired(n, c))
		case before == nil:
		case c.gpu.kind != nil && c.gpu.differs:
			spec = append(spec, asIs(c.gpu))
		default:
			spec = append(spec, *before.DeepCopy())
		}
	}
	slices.SortFunc(spec, func(a, b v1alpha1.DesiredGPU) int { return cmp.Compare(a.UUID, b.UUID) })
	return spec
}

// desired is the spec of a GPU that is changed.
func (d *draft) desired(n *node, c *cell) v1alpha1.DesiredGPU {
	want := v1alpha1.DesiredGPU{UUID: c.gpu.uuid, MIGEnabled: true, Instances: list(c.gpu, c.instances)}
	if d.pools[n.pool].static() {
		want.MIGEnabled = len(want.Instances) > 0
	}
	if want.MIGEnabled != c.gpu.enabled || c.gpu.unreset {
		resets := d.pools[n.pool].resets
		want.MayReset = !c.gpu.kind.board.ModeAtOnce && (resets == v1alpha1.MIGResetsWhenIdle || resets == v1alpha1.MIGResetsDrain)
	}
	return want
}

// asIs is the spec that leaves a GPU as it is.
func asIs(g *gpu) v1alpha1.DesiredGPU {
	is := v1alpha1.DesiredGPU{UUID: g.uuid, MIGEnabled: g.enabled}
	if g.enabled {
		is.Instances = list(g, g.instances)
	}
	return is
}

// list are the instances for the spec, by start. Foreign ones are not in it.
func list(g *gpu, instances []instance) []v1alpha1.DesiredInstance {
	var all []v1alpha1.DesiredInstance
	for i := range instances {
		if it := &instances[i]; g.foreign&it.Mask() == 0 {
			all = append(all, v1alpha1.DesiredInstance{Profile: g.kind.nameOf(it.Profile), Start: int32(it.Start)}) //nolint:gosec // at most 7
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.DesiredInstance) int { return cmp.Compare(a.Start, b.Start) })
	return all
}

// loses says what a spec would take from pods that are bound to the node; empty for
// nothing. It is the last word before the spec is written, and asks in another way
// than the draft was made: of each profile that such pods ask for as many must be
// left as there are, or as they ask for.
func (d *draft) loses(at int, spec []v1alpha1.DesiredGPU) string {
	n := &d.nodes[at]
	asked := map[v1alpha1.MIGProfile]int{}
	for i := range n.claims {
		for _, a := range n.claims[i].asks {
			asked[a.profile] += a.count
		}
	}
	for name, count := range asked {
		there, left := 0, 0
		for i := range n.machine.gpus {
			g := &n.machine.gpus[i]
			if g.kind == nil || g.kind.profile(name) == nil {
				continue
			}
			p := g.kind.profile(name)
			t, l := countOf(g, p, spec)
			there, left = there+t, left+l
		}
		if left < min(there, count) {
			return fmt.Sprintf("pods bound to it need %d of %s, and %d would be left", count, name, left)
		}
	}
	return ""
}

// countOf is how many instances of a profile a GPU has, and will have by a spec.
func countOf(g *gpu, p *mig.Profile, spec []v1alpha1.DesiredGPU) (there, left int) {
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
		if found, err := g.kind.board.Named(it.Profile); err == nil && found == p {
			left++
		}
	}
	return there, left
}
