// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// serve finds a place for each want: what is idle, then room, then what idle
// instances give up; on MIG-enabled GPUs before others, and on nodes that are being
// changed anyhow before others.
func (d *draft) serve() {
	open := make([]int, 0, len(d.wants))
	for i := range d.wants {
		w := &d.wants[i]
		if at := w.ripeAt(); at.After(d.now) {
			d.wake(at)
			continue
		}
		d.demand(w)
		if !d.offer(i) {
			open = append(open, i)
		}
	}
	for _, i := range open {
		if w := &d.wants[i]; w.excused || !d.place(i) {
			d.unmet = append(d.unmet, i)
		}
	}
}

// offer gives a want what is idle, if there is: its scheduler is left to find it. One
// whose scheduler did not use what is there is not offered it again.
func (d *draft) offer(i int) bool {
	w := &d.wants[i]
	since, offered := d.past.offered[w.uid]
	if offered && d.now.Sub(since) >= grace {
		d.offers(w, since)
		return false
	}
	for _, pool := range w.order {
		for at := range d.nodes {
			if d.nodes[at].pool != pool || !w.where[at] || !d.idle(at, w) {
				continue
			}
			for _, a := range w.asks {
				d.keep(at, a.profile, a.count)
			}
			if !offered || d.nodes[at].taint != nil {
				since = d.now // its scheduler cannot have it yet
			}
			d.offers(w, since)
			d.wake(since.Add(grace))
			d.work[at].offers = append(d.work[at].offers, i)
			return true
		}
	}
	return false
}

// idle tells whether a node has all that the want asks for.
func (d *draft) idle(at int, w *want) bool {
	for _, a := range w.asks {
		if d.idleOf(at, a.profile) < a.count {
			return false
		}
	}
	return true
}

func (d *draft) idleOf(at int, name v1alpha1.MIGProfile) (n int) {
	cells := d.cellsOf(at)
	for i := range cells {
		c := &cells[i]
		if c.gpu.kind == nil || c.taken == c.held {
			continue
		}
		p := c.gpu.kind.profile(name)
		if p == nil {
			continue
		}
		for j := range c.instances {
			if it := &c.instances[j]; it.Profile == p && it.Use == mig.Idle {
				n++
			}
		}
	}
	return n
}

// idle tells whether the machine has idle all that a want asks for.
func (m *machine) idle(w *want) bool {
	for _, a := range w.asks {
		n := 0
		for i := range m.gpus {
			g := &m.gpus[i]
			for j := range g.instances {
				if it := &g.instances[j]; it.Use == mig.Idle && g.kind != nil && g.kind.profile(a.profile) == it.Profile {
					n++
				}
			}
		}
		if n < a.count {
			return false
		}
	}
	return true
}
