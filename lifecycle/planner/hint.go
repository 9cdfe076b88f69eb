// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// hint is why there is no room for a want in a pool, and what would help.
func (d *draft) hint(w *want, pool int, may preemptible) (reason, hint string) {
	if w.excused {
		return ReasonMissesOther, "its scheduler misses something else; see the pod's events"
	}
	for _, a := range w.asks {
		if names, had := d.offered(w, pool, a.profile); !had {
			if len(names) == 0 {
				return ReasonNoRoom, "no agent of a node where it may be has reported GPUs that can be cut"
			}
			return ReasonNoSuchProfile, fmt.Sprintf("no board of this pool has profile %s; they have %s", a.profile, strings.Join(names, ", "))
		}
	}
	for at := range d.nodes {
		if d.nodes[at].pool != pool || !w.where[at] {
			continue
		}
		for _, c := range d.cellsOf(at) {
			if g := c.gpu; c.tier == never && g.kind != nil && !g.enabled && g.holders == 0 && g.kind.profile(w.asks[0].profile) != nil {
				return ReasonResetRequired, fmt.Sprintf("GPU %d of node %s %s", g.index, d.nodes[at].name, d.whyNever(&c))
			}
		}
	}
	if node, pods, ok := d.preempting(w, pool, may); ok {
		return ReasonNoRoom, fmt.Sprintf("it fits on node %s after preempting %d preemptible pods (%s)", node, len(pods), few(pods))
	}
	for at := range d.nodes {
		if d.nodes[at].pool == pool && w.where[at] && d.work[at].stage == closed && d.work[at].why != "" {
			return ReasonNoRoom, fmt.Sprintf("there is no room now; of node %s: %s", d.nodes[at].name, d.work[at].why)
		}
	}
	return ReasonNoRoom, "every place for it is in use by pods that are not preempted; it fits when enough of them have ended"
}

// offered tells whether a board in the pool, where a want may be, has a profile, and
// which there are.
func (d *draft) offered(w *want, pool int, name v1alpha1.MIGProfile) (names []string, had bool) {
	for at := range d.nodes {
		if d.nodes[at].pool != pool || !w.where[at] {
			continue
		}
		for _, c := range d.cellsOf(at) {
			if c.gpu.kind == nil {
				continue
			}
			if c.gpu.kind.profile(name) != nil {
				return nil, true
			}
			for known := range c.gpu.kind.byName {
				if !slices.Contains(names, string(known)) {
					names = append(names, string(known))
				}
			}
		}
	}
	slices.Sort(names)
	return names, false
}

// preempting is a node where one more instance fits once these pods have ended.
func (d *draft) preempting(w *want, pool int, may preemptible) (node string, pods []string, ok bool) {
	if len(w.asks) > 1 || w.asks[0].count > 1 || may == nil {
		return "", nil, false
	}
	var cells []*cell
	var gpus []mig.GPU
	for at := range d.nodes {
		if d.nodes[at].pool != pool || !w.where[at] || d.work[at].stage == closed && d.nodes[at].machine == nil {
			continue
		}
		for c := d.work[at].first; c < d.work[at].last && len(cells) < mostWeighed; c++ {
			it := &d.cells[c]
			if it.tier != inMode || it.gpu.kind.profile(w.asks[0].profile) == nil {
				continue
			}
			board := it.board()
			for k := range board.Instances {
				if pod := it.instances[k].pod; pod != nil && may(*pod) {
					board.Instances[k].Use = mig.Preemptible
				}
			}
			cells, gpus = append(cells, it), append(gpus, board)
		}
	}
	step, victims, ok := mig.Preempt(gpus, w.asks[0].profile)
	if !ok || len(victims) == 0 {
		return "", nil, false
	}
	c := cells[step.GPU]
	for _, v := range victims {
		pods = append(pods, c.instances[v].pod.Namespace+"/"+c.instances[v].pod.Name)
	}
	return d.nodes[c.at].name, pods, true
}
