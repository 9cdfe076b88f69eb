// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// decision is what is to be done, and what there is to say.
type decision struct {
	actions []action
	// memory is to be given to the next decision.
	memory memory
	// next is when to decide again though nothing happens; zero for never.
	next time.Time
	// unmet are the indices of the wants for which there is no room now.
	unmet []int
	// asked is how many instances of each profile are asked for.
	asked map[v1alpha1.MIGProfile]int
	// draft is how the GPUs would be; it is read to explain.
	draft *draft
	// impossible says of static pools, by index, what of the layout cannot be.
	impossible map[int][]string
}

// verb is what is to be done with a node.
type verb uint8

const (
	// putTaint keeps new pods away from the node; on one that has the taint it says
	// that it is new.
	putTaint verb = iota
	// writeSpec says how the GPUs shall be cut.
	writeSpec
	// takeTaint lets pods in again.
	takeTaint
)

// outcome is why a taint is taken off.
type outcome uint8

const (
	// done: the GPUs are cut as the spec says.
	done outcome = iota
	// abandoned: there is nothing to change any more, or it may not be.
	abandoned
	// failed: the agent found it impossible and what was there is there.
	failed
	// timedOut: somebody did not answer in time.
	timedOut
)

// action is one write.
type action struct {
	verb verb
	node string
	// spec is written by writeSpec, and restores is whether it is what is there.
	spec     []v1alpha1.DesiredGPU
	restores bool
	// wants are the indices of those for whom it is done.
	wants []int
	// outcome and why are for takeTaint, and since when the node was tainted.
	outcome outcome
	why     string
	since   time.Time
}

// decide says what is to be done now. It has no memory but what it is given.
func decide(s *snapshot, now time.Time) decision {
	d := &draft{snapshot: s, now: now, work: make([]work, len(s.nodes))}
	d.remember()
	d.cells = make([]cell, 0, s.gpus())
	for at := range s.nodes {
		d.stageOf(at)
		d.layOut(at)
	}
	d.layoutStatic()
	d.serve()
	d.conclude()
	out := d.decision
	out.draft = d
	return out
}

// remember begins the next memory with what still matters.
func (d *draft) remember() {
	d.asked, d.impossible = map[v1alpha1.MIGProfile]int{}, map[int][]string{}
	next := memory{offered: map[types.UID]time.Time{}, resting: map[string]pause{}, distrusted: map[v1alpha1.GPUUUID]pause{}, whole: map[string]time.Time{}}
	for name, until := range d.past.whole {
		if until.After(d.now) {
			next.whole[name] = until
		}
	}
	// A node that has been at peace for long begins anew.
	for name, p := range d.past.resting {
		if d.now.Sub(p.until) < longestBreather {
			next.resting[name] = p
		}
	}
	for uuid, p := range d.past.distrusted {
		if d.now.Sub(p.until) < longestDistrust {
			next.distrusted[uuid] = p
		}
	}
	d.memory = next
}

// conclude turns the draft into actions.
func (d *draft) conclude() {
	changing := make([]int, len(d.pools))
	sizes := make([]int, len(d.pools))
	for at := range d.nodes {
		sizes[d.nodes[at].pool]++
		if d.nodes[at].taint != nil {
			changing[d.nodes[at].pool]++
		}
	}
	for at := range d.nodes {
		w, n := &d.work[at], &d.nodes[at]
		switch w.stage {
		case closed:
		case finishing:
			d.finish(at)
		case open:
			if !w.changed && !w.draining || d.hinders(at) {
				continue
			}
			// Half of a pool at a time, so that the rest still takes pods.
			if changing[n.pool] > 0 && changing[n.pool] >= (sizes[n.pool]+1)/2 {
				continue
			}
			changing[n.pool]++
			d.do(action{verb: putTaint, node: n.name, wants: w.wants})
		case settling, ready:
			d.prepare(at)
		}
	}
}

// hinders tells whether somebody can use the node as it is and is given time for that.
// Those for whom it shall be changed do not wait for ever.
func (d *draft) hinders(at int) bool {
	w := &d.work[at]
	if len(w.offers) == 0 {
		return false
	}
	for _, i := range w.wants {
		if until := d.wants[i].since.Add(patience); until.After(d.now) {
			d.wake(until)
		} else {
			return false
		}
	}
	return true
}

func (d *draft) do(a action) { d.actions = append(d.actions, a) }

// demand counts what is asked for.
func (d *draft) demand(w *want) {
	for _, a := range w.asks {
		d.asked[a.profile] += a.count
	}
}

// offers remembers since when a want has had something to use.
func (d *draft) offers(w *want, since time.Time) { d.memory.offered[w.uid] = since }

// wake asks for another decision then.
func (d *draft) wake(at time.Time) {
	if at.After(d.now) && (d.next.IsZero() || at.Before(d.next)) {
		d.next = at
	}
}
