// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"time"
)

// stageOf tells where a node is.
func (d *draft) stageOf(at int) {
	n, w := &d.nodes[at], &d.work[at]
	m := n.machine
	switch {
	case n.taint == nil:
		w.stage = open
		if w.why = d.shut(n); w.why != "" {
			w.stage = closed
		}
	case m == nil || n.taint.generation != m.generation:
		w.stage = finishing
	case d.unreachable(m) != "" || !m.caughtUp:
		// Nothing is written for an agent that is not there.
		w.stage = finishing
	default:
		w.stage = settling
		if until, settled := n.settles(d.now); !settled {
			d.wake(until)
		} else if n.known {
			w.stage = ready
		}
	}
}

// shut is why nothing can be changed on a node that is not tainted; empty where it can.
func (d *draft) shut(n *node) string {
	if n.machine == nil {
		return "it has no GPUNode"
	}
	if n.unfit != "" {
		return n.unfit
	}
	if why := d.unreachable(n.machine); why != "" {
		return why
	}
	if !n.machine.caughtUp {
		return "its agent has not carried out the last layout yet"
	}
	if until := d.past.resting[n.name].until; until.After(d.now) {
		d.wake(until)
		return "it was changed a moment ago"
	}
	return ""
}

// unreachable is why an agent cannot be asked to do anything.
func (d *draft) unreachable(m *machine) string {
	if m.absent != "" {
		return m.absent
	}
	if !m.sampled.IsZero() {
		if until := m.sampled.Add(silent); !until.After(d.now) {
			return fmt.Sprintf("its agent has said nothing for %s", silent)
		}
	}
	return ""
}

// settles is from when a tainted node's pods can be counted, and whether that has come:
// no scheduler binds one there any more.
func (n *node) settles(now time.Time) (until time.Time, settled bool) {
	until = n.taint.since.Add(settle)
	for i := range n.claims {
		// One that is bound in the future is of another clock.
		if at := n.claims[i].bound; at.Before(now.Add(settle)) && at.Add(settle).After(until) {
			until = at.Add(settle)
		}
	}
	return until, !until.After(now)
}
