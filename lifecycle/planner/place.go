// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// mostWeighed is how many GPUs are weighed against each other for what has no room
// without something idle giving way.
const mostWeighed = 64

// place makes room for a want, in the draft.
func (d *draft) place(i int) bool {
	w := &d.wants[i]
	for _, pool := range w.order {
		if d.pools[pool].static() {
			continue
		}
		for t := inMode; t < tiers; t++ {
			for _, changing := range []bool{true, false} {
				if d.placeOn(i, func(at int) bool {
					return d.nodes[at].pool == pool && w.where[at] && d.takes(at, changing) && !d.spurned(at, w)
				}, t) {
					return true
				}
			}
		}
	}
	return false
}

// takes tells whether a node may be cut: one that is being changed and whose spec is
// not written yet, or one that may be.
func (d *draft) takes(at int, changing bool) bool {
	if changing {
		return d.work[at].stage == settling || d.work[at].stage == ready
	}
	return d.work[at].stage == open
}

// spurned tells whether the node has had for long what the want asks for: there it
// is not that what keeps the pod out.
func (d *draft) spurned(at int, w *want) bool {
	since, offered := d.past.offered[w.uid]
	return offered && d.now.Sub(since) >= grace && d.nodes[at].machine.idle(w)
}

// placeOn finds room for a want on GPUs of a tier of nodes that may be cut.
func (d *draft) placeOn(i int, may func(node int) bool, t tier) bool {
	w := &d.wants[i]
	if len(w.asks) > 1 || w.asks[0].count > 1 {
		return d.placeTogether(i, may, t)
	}
	name := w.asks[0].profile
	best, start, least := -1, 0, 0
	var crowded []int
	for at := range d.nodes {
		if !may(at) {
			continue
		}
		for c := d.work[at].first; c < d.work[at].last; c++ {
			it := &d.cells[c]
			if it.tier != t {
				continue
			}
			p := it.gpu.kind.profile(name)
			if p == nil {
				continue
			}
			board := it.gpu.kind.board
			if p.Attribute == "" {
				if s, harm, ok := board.Place(it.taken, p); ok {
					if best < 0 || harm < least {
						best, start, least = c, s, harm
					}
					continue
				}
			}
			if best < 0 && len(crowded) < mostWeighed && board.CanFit(it.held, p) {
				crowded = append(crowded, c)
			}
		}
	}
	if best >= 0 {
		p := d.cells[best].gpu.kind.profile(name)
		d.cut(best, i, nil, []mig.Step{{Profile: p, Start: start}})
		return true
	}
	gpus := make([]mig.GPU, len(crowded))
	for k, c := range crowded {
		gpus[k] = d.cells[c].board()
	}
	change := mig.Plan(gpus, []v1alpha1.MIGProfile{name})
	if len(change.Create) != 1 {
		return false
	}
	d.cut(crowded[change.Create[0].GPU], i, change.Destroy, change.Create)
	return true
}

// placeTogether finds a node that has room for several instances at once: the one
// where least is given up, and then least is made.
func (d *draft) placeTogether(i int, may func(node int) bool, t tier) bool {
	w := &d.wants[i]
	var best mig.Change
	var at []int
	for n := range d.nodes {
		if !may(n) {
			continue
		}
		var cells []int
		var gpus []mig.GPU
		for c := d.work[n].first; c < d.work[n].last; c++ {
			if it := &d.cells[c]; it.tier <= t {
				cells, gpus = append(cells, c), append(gpus, it.board())
			}
		}
		change := mig.Plan(gpus, w.profiles())
		if len(change.Unmet) > 0 || change.Empty() {
			continue
		}
		if at == nil || len(change.Destroy) < len(best.Destroy) || len(change.Destroy) == len(best.Destroy) && len(change.Create) < len(best.Create) {
			best, at = change, cells
		}
	}
	if at == nil {
		return false
	}
	made := map[*mig.Profile]int{}
	for k, c := range at {
		destroy, create := onGPU(best.Destroy, k), onGPU(best.Create, k)
		for _, step := range create {
			made[step.Profile]++
		}
		if len(destroy)+len(create) > 0 {
			d.cut(c, i, destroy, create)
		}
	}
	node := d.cells[at[0]].at
	for _, a := range w.asks {
		left := a.count
		for p, n := range made {
			if d.cells[at[0]].gpu.kind.profile(a.profile) == p {
				left -= n
			}
		}
		d.keep(node, a.profile, left)
	}
	return true
}

// profiles are the instances one by one.
func (w *want) profiles() []v1alpha1.MIGProfile {
	var all []v1alpha1.MIGProfile
	for _, a := range w.asks {
		for range a.count {
			all = append(all, a.profile)
		}
	}
	return all
}

func onGPU(steps []mig.Step, gpu int) (of []mig.Step) {
	for _, step := range steps {
		if step.GPU == gpu {
			of = append(of, step)
		}
	}
	return of
}

// cut changes a GPU for a want, in the draft.
func (d *draft) cut(c, wanted int, destroy, create []mig.Step) {
	it := &d.cells[c]
	it.apply(destroy, create)
	w := &d.work[it.at]
	if it.tier == byDrain {
		w.draining = true
	} else {
		w.changed = true
	}
	w.wants = append(w.wants, wanted)
}
