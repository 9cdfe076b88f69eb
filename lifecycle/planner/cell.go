// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// cell is a GPU in a draft.
type cell struct {
	at   int // its node
	gpu  *gpu
	tier tier
	// instances are what will be there; held are the slices of those that stay.
	instances   []instance
	taken, held mig.Mask
	changed     bool
	owned       bool // instances may be changed
}

// tierOf is how readily the GPU is cut, in its pool.
func (d *draft) tierOf(n *node, g *gpu, wholeUnknown bool) tier {
	resets := d.pools[n.pool].resets
	switch {
	case g.kind == nil, d.past.distrusted[g.uuid].until.After(d.now), g.differs && !n.machine.failed:
		return never
	case g.enabled && !g.unreset:
		return inMode
	case g.enabled: // it shall leave the mode: somebody wants it so
		return never
	case g.kind.board.ModeAtOnce && !g.unreset:
		if g.holders > 0 || wholeUnknown {
			return never
		}
		return atOnce
	case resets == v1alpha1.MIGResetsDrain && (g.holders > 0 || wholeUnknown):
		return byDrain
	case g.holders > 0, wholeUnknown, resets != v1alpha1.MIGResetsWhenIdle && resets != v1alpha1.MIGResetsDrain:
		return never
	}
	return byReset
}

// wholeUnknown tells whether pods have whole GPUs of the node of which the agent does not
// say which. That is known where its pods were counted, and remembered for a while.
func (d *draft) wholeUnknown(n *node) bool {
	if n.known {
		delete(d.memory.whole, n.name)
		if n.wholeClaimed() <= n.machine.held() {
			return false
		}
		d.memory.whole[n.name] = d.now.Add(longestBreather)
		return true
	}
	until := d.past.whole[n.name]
	d.wake(until)
	return until.After(d.now)
}

// wholeClaimed is how many whole GPUs the node's pods ask for, as far as they are known.
func (n *node) wholeClaimed() (sum int) {
	for i := range n.claims {
		sum += n.claims[i].whole
	}
	return sum
}

// held is how many of the machine's GPUs somebody has as a whole.
func (m *machine) held() (sum int) {
	for i := range m.gpus {
		if !m.gpus[i].enabled {
			sum += m.gpus[i].holders
		}
	}
	return sum
}

// coming is what the GPU will have once the spec is carried out: what is there
// already, as it is used, and what is not there yet, idle.
func (g *gpu) coming() []instance {
	var will []instance
	for i := range g.instances {
		if g.foreign&g.instances[i].Mask() != 0 {
			will = append(will, g.instances[i])
		}
	}
	for _, desired := range g.desired.Instances {
		p, err := g.kind.board.Named(desired.Profile)
		if err != nil {
			continue
		}
		it := instance{Instance: mig.Instance{Profile: p, Start: int(desired.Start)}}
		at := slices.IndexFunc(g.instances, func(there instance) bool { return there.Profile == p && there.Start == it.Start })
		if at >= 0 {
			it = g.instances[at]
		}
		will = append(will, it)
	}
	return will
}

// own makes the instances the cell's, to be changed.
func (c *cell) own() {
	if !c.owned {
		c.instances, c.owned = slices.Clone(c.instances), true
	}
}

// weigh reckons up what is taken and held.
func (c *cell) weigh() {
	c.taken, c.held = 0, 0
	for i := range c.instances {
		it := &c.instances[i]
		c.taken |= it.Mask()
		if it.Use != mig.Idle {
			c.held |= it.Mask()
		}
	}
}

// apply cuts the GPU as a plan for it alone says; what is made is kept for who wanted it.
func (c *cell) apply(destroy, create []mig.Step) {
	c.own()
	for _, step := range destroy {
		c.instances = slices.DeleteFunc(c.instances, func(it instance) bool {
			return it.Profile == step.Profile && it.Start == step.Start
		})
	}
	for _, step := range create {
		c.instances = append(c.instances, instance{Instance: mig.Instance{Profile: step.Profile, Start: step.Start, Use: mig.InUse}})
	}
	c.changed = true
	c.weigh()
}

// board is the GPU as package mig plans on it.
func (c *cell) board() mig.GPU {
	return mig.GPU{Board: c.gpu.kind.board, Instances: plain(c.instances)}
}
