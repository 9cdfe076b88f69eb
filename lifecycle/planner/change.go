// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
)

// prepare goes on with a node that is tainted and whose spec is not written.
func (d *draft) prepare(at int) {
	w, n := &d.work[at], &d.nodes[at]
	switch {
	case !w.changed && !w.draining:
		d.release(at, abandoned, "nothing is to be changed there any more")
	case w.stage == settling:
	case !w.changed: // until those have ended who have the GPU
	case d.now.Sub(n.taint.since) > fresh:
		d.do(action{verb: putTaint, node: n.name, wants: w.wants})
	default:
		spec := d.spec(at)
		if lost := d.loses(at, spec); lost != "" {
			d.release(at, abandoned, lost)
			return
		}
		d.do(action{verb: writeSpec, node: n.name, spec: spec, wants: w.wants})
		d.wake(n.taint.since.Add(fresh + agentTime))
	}
}

// finish goes on with a node whose spec is written.
func (d *draft) finish(at int) {
	n := &d.nodes[at]
	m := n.machine
	switch byAgent := n.taint.since.Add(fresh + agentTime); {
	case m == nil:
		d.release(at, abandoned, "its GPUNode has gone")
	case !m.caughtUp && d.now.Before(byAgent):
		d.wake(byAgent)
	case !m.caughtUp && m.differs():
		// Should it come back later, it is not to change a node that takes pods.
		d.do(action{verb: writeSpec, node: n.name, spec: d.spec(at), restores: true})
	case !m.caughtUp:
		d.release(at, timedOut, fmt.Sprintf("its agent has not answered within %s; is it running there?", agentTime))
	case m.failed && m.differs() && d.now.Before(byAgent):
		d.suspect(m)
		d.do(action{verb: writeSpec, node: n.name, spec: d.spec(at), restores: true})
		d.wake(byAgent)
	case !m.agrees(n.published) && d.now.Before(byAgent.Add(publishTime)):
		d.wake(byAgent.Add(publishTime))
	case !m.agrees(n.published) && m.exceeded(n.published):
		// A pod would be sent to what is not there, and fail. The kubelet takes back
		// what a plugin that has gone had told.
	case !m.agrees(n.published):
		d.release(at, timedOut, fmt.Sprintf("the node's allocatable lacks instances of its GPUs after %s; is the device plugin running there, with the strategy mixed?", publishTime))
	case m.failed:
		d.suspect(m)
		d.release(at, failed, m.message)
	case n.taint.generation == m.generation:
		d.release(at, abandoned, d.unreachable(m))
	case d.restored(m):
		d.release(at, failed, "its agent could not cut the GPUs as asked; they are as they were")
	default:
		d.release(at, done, "")
	}
}

// differs tells whether a GPU is not cut as the spec says.
func (m *machine) differs() bool {
	for i := range m.gpus {
		if m.gpus[i].differs {
			return true
		}
	}
	return false
}

// restored tells whether a GPU's layout could not be applied a moment ago.
func (d *draft) restored(m *machine) bool {
	for i := range m.gpus {
		if d.memory.distrusted[m.gpus[i].uuid].until.After(d.now) {
			return true
		}
	}
	return false
}

// suspect leaves alone for a while the GPUs whose layout could not be applied.
func (d *draft) suspect(m *machine) {
	for i := range m.gpus {
		uuid := m.gpus[i].uuid
		if before := d.memory.distrusted[uuid]; m.gpus[i].differs && !before.until.After(d.now) {
			d.memory.distrusted[uuid] = before.after(d.now, distrust, longestDistrust)
		}
	}
}

// release takes the taint off, and leaves the node alone for a while.
func (d *draft) release(at int, what outcome, why string) {
	n := &d.nodes[at]
	before := d.memory.resting[n.name]
	if what == done {
		before.failures = 0
	}
	after := before.after(d.now, breather, longestBreather)
	if what == done {
		after.failures = 0
	}
	d.memory.resting[n.name] = after
	d.do(action{verb: takeTaint, node: n.name, outcome: what, why: why, since: n.taint.since})
}
