// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// tier is how readily a GPU is cut.
type tier uint8

const (
	// inMode: it is in MIG mode.
	inMode tier = iota
	// atOnce: its mode changes at once, and nobody has it.
	atOnce
	// byReset: its mode changes by a reset that is allowed, and nobody has it.
	byReset
	// byDrain: the same, and those who have it are waited for.
	byDrain
	tiers

	// never: nothing is cut there.
	never
)

// stage is where a node is in a change.
type stage uint8

const (
	// open: it is not being changed and may be.
	open stage = iota
	// closed: it is not being changed and may not be now.
	closed
	// settling: it is tainted, and pods may still be bound to it.
	settling
	// ready: its pods are counted and the spec may be written.
	ready
	// finishing: the spec is written, or nobody knows why it is tainted.
	finishing
)

// draft is a decision in the making.
type draft struct {
	*snapshot
	now   time.Time
	work  []work
	cells []cell
	decision
}

// work is a node in a draft.
type work struct {
	stage stage
	// why says why it is closed.
	why string
	// first and last bound its cells.
	first, last int
	// changed and draining tell that GPUs of it are to be cut, now, or when those who
	// have it have ended; wants are for whom.
	changed, draining bool
	wants             []int
	// offers are those who could use idle instances of it as they are.
	offers []int
}

// cellsOf are a node's.
func (d *draft) cellsOf(node int) []cell { return d.cells[d.work[node].first:d.work[node].last] }

// layOut makes the cells of a node.
func (d *draft) layOut(at int) {
	n, w := &d.nodes[at], &d.work[at]
	w.first = len(d.cells)
	if n.machine != nil && d.matters(n) {
		coming := w.stage == finishing && !n.machine.caughtUp
		wholeUnknown := d.wholeUnknown(n)
		for i := range n.machine.gpus {
			g := &n.machine.gpus[i]
			c := cell{at: at, gpu: g, tier: d.tierOf(n, g, wholeUnknown), instances: g.instances, taken: g.taken, held: g.held}
			if coming && g.desired != nil && g.kind != nil {
				c.instances = g.coming()
				c.weigh()
			}
			d.cells = append(d.cells, c)
		}
	}
	w.last = len(d.cells)
	d.claim(at)
}

// matters tells whether anything can become of a node's GPUs: most of the time nobody
// waits and nothing changes.
func (s *snapshot) matters(n *node) bool {
	return len(s.wants) > 0 || n.taint != nil || s.pools[n.pool].static()
}

// gpus is how many there are of nodes that matter.
func (s *snapshot) gpus() (sum int) {
	for i := range s.nodes {
		if n := &s.nodes[i]; n.machine != nil && s.matters(n) {
			sum += len(n.machine.gpus)
		}
	}
	return sum
}

// claim keeps what bound pods need and, by the agent's report, do not have. They may
// have it by now, and nobody knows which: all idle instances of the profile stay until
// the agent has said so.
func (d *draft) claim(at int) {
	n := &d.nodes[at]
	for i := range n.claims {
		for _, a := range n.claims[i].asks {
			if d.has(at, &n.claims[i], a.profile) < a.count {
				d.keep(at, a.profile, mostAsked)
			}
		}
	}
}

// has is how many instances of a profile the agent says that the pod has.
func (d *draft) has(at int, c *claim, name v1alpha1.MIGProfile) (n int) {
	cells := d.cellsOf(at)
	for i := range cells {
		for j := range cells[i].instances {
			it := &cells[i].instances[j]
			if it.pod != nil && it.pod.UID == c.uid && cells[i].gpu.kind.profile(name) == it.Profile {
				n++
			}
		}
	}
	return n
}

// keep marks so many idle instances of a profile on a node as in use.
func (d *draft) keep(at int, name v1alpha1.MIGProfile, count int) {
	cells := d.cellsOf(at)
	for i := range cells {
		c := &cells[i]
		if c.gpu.kind == nil {
			continue
		}
		p := c.gpu.kind.profile(name)
		for j := 0; p != nil && j < len(c.instances) && count > 0; j++ {
			if it := &c.instances[j]; it.Profile == p && it.Use == mig.Idle {
				c.own()
				c.instances[j].Use = mig.InUse
				c.held |= c.instances[j].Mask()
				count--
			}
		}
	}
}
