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

// desiredSpec returns the node's next spec: the drafted layout of changed GPUs, the present
// layout of GPUs whose spec could not be applied, and the previous spec of the others.
func (d *draft) desiredSpec(at int) []v1alpha1.DesiredGPU {
	n := &d.nodes[at]
	drafts := d.gpuDraftsOf(at)
	var spec []v1alpha1.DesiredGPU
	for i := range drafts {
		c := &drafts[i]
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

// desiredGPU returns the spec of a changed GPU.
func (d *draft) desiredGPU(n *node, c *gpuDraft) v1alpha1.DesiredGPU {
	desired := v1alpha1.DesiredGPU{UUID: c.gpu.uuid, MIGEnabled: true, Instances: desiredInstances(c.gpu, c.instances)}
	if d.pools[n.pool].isStatic() {
		desired.MIGEnabled = len(desired.Instances) > 0
	}
	if desired.MIGEnabled != c.gpu.migEnabled || c.gpu.resetPending {
		desired.MayReset = !c.gpu.model.migModel.ModeWithoutReset && d.pools[n.pool].mayReset()
	}
	return desired
}

// currentSpec returns the spec that keeps a GPU as observed.
func currentSpec(g *gpu) v1alpha1.DesiredGPU {
	spec := v1alpha1.DesiredGPU{UUID: g.uuid, MIGEnabled: g.migEnabled}
	if g.migEnabled {
		spec.Instances = desiredInstances(g, g.instances)
	}
	return spec
}

// desiredInstances returns the instances for the spec by start, without foreign ones.
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

// explainLoss returns which instances of bound pods a spec would destroy; empty for none. It is
// the last check before the spec is written, and independent of how the draft was made: of each
// profile that bound pods request, as many must remain as exist or as are requested.
func (d *draft) explainLoss(at int, spec []v1alpha1.DesiredGPU) string {
	n := &d.nodes[at]
	requested := map[v1alpha1.MIGProfile]int{}
	for i := range n.boundPods {
		for _, a := range n.boundPods[i].instanceRequests {
			requested[a.profile] += a.count
		}
	}
	for name, count := range requested {
		current, remaining := 0, 0
		for i := range n.observed.gpus {
			g := &n.observed.gpus[i]
			if g.model == nil || g.model.resolveProfile(name) == nil {
				continue
			}
			p := g.model.resolveProfile(name)
			t, l := countInstances(g, p, spec)
			current, remaining = current+t, remaining+l
		}
		if remaining < min(current, count) {
			return fmt.Sprintf("pods bound to the node need %d of %s, and %d would remain", count, name, remaining)
		}
	}
	return ""
}

// countInstances counts the instances of a profile that a GPU has, and that a spec leaves.
func countInstances(g *gpu, p *mig.Profile, spec []v1alpha1.DesiredGPU) (current, remaining int) {
	ours := 0
	for i := range g.instances {
		if it := &g.instances[i]; it.Profile == p {
			current++
			if g.foreign&it.Mask() == 0 {
				ours++
			}
		}
	}
	at := slices.IndexFunc(spec, func(d v1alpha1.DesiredGPU) bool { return d.UUID == g.uuid })
	if at < 0 {
		return current, current
	}
	remaining = current - ours
	for _, it := range spec[at].Instances {
		if found, err := g.model.migModel.Profile(it.Profile); err == nil && found == p {
			remaining++
		}
	}
	return current, remaining
}
