// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/migplan/preemption"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// preemptionHistory is a cluster of two nodes with a GPU each, full of small pods, and a claimant of a whole GPU.
type preemptionHistory struct {
	*testSnapshot
	now  time.Time
	pods map[types.UID]*historyPod
	// evictions holds the times of evictions by node, and evictedOn the nodes.
	evictions map[string][]time.Time
	// choices holds the times at which the process chose a place, givenUp when it gave the last one up.
	choices []time.Time
	givenUp time.Time
}

type historyPod struct {
	preemption.Pod
	node         string
	start        int
	gone, exited bool
}

// report lets the agents report the instances.
func (h *preemptionHistory) report() {
	for _, name := range []string{"n1", "n2"} {
		var layout []string
		for uid, p := range h.pods {
			switch place := fmt.Sprintf("1g.5gb@%d", p.start); {
			case p.node != name:
			case !p.gone:
				layout = append(layout, place+"!"+string(uid))
			case !p.exited:
				layout = append(layout, place+"!")
			default:
				layout = append(layout, place)
			}
		}
		slices.Sort(layout)
		h.updateGPUNode(name, func(o *v1alpha1.GPUNode) {
			o.Status.GPUs[0] = newObservedGPU(h, name, 0, "a100: "+strings.Join(layout, " "))
			o.Status.SampledAt.Time = h.now
		})
	}
}

// step decides, and writes the first writes of the decision; the process crashes before the others. It reports whether
// the claimant has room, and whether a reason is known if not.
func (h *preemptionHistory) step(t *rapid.T, writes int) (served, explained bool) {
	if h.previousState.givenUp == nil { // a new process
		h.choices, h.givenUp = nil, time.Time{}
	}
	d := decide(&h.snapshot, h.now)
	h.checkPause(t, &d)
	h.previousState = d.nextState
	may := func() bool { writes--; return writes >= 0 }
	for name, r := range d.preemptions.reserve {
		for i := range h.nodes {
			if h.nodes[i].name == name && may() {
				h.nodes[i].reservation = r
			}
		}
	}
	for _, a := range d.preemptions.announce {
		if may() && h.announced[a.UID] == nil && !h.pods[a.UID].gone {
			h.announced[a.UID] = &eviction.AnnouncedPod{Announcement: a, Node: h.pods[a.UID].node, At: h.now.Add(5 * time.Minute)}
		}
	}
	for _, w := range d.preemptions.withdraw {
		if may() {
			delete(h.announced, w.announcement.UID)
		}
	}
	reserved := slices.ContainsFunc(h.nodes, func(n node) bool { return n.reservation != nil })
	return len(d.unmet) == 0, reserved || len(d.preemptions.explain) > 0
}

// checkPause checks that a process chooses no place right after it gave one up, and after each for longer.
func (h *preemptionHistory) checkPause(t *rapid.T, d *decision) {
	for i := range h.nodes {
		if r, written := d.preemptions.reserve[h.nodes[i].name]; written && r == nil && h.nodes[i].reservation != nil && h.givenUp.IsZero() {
			h.givenUp = h.now
		}
	}
	for _, r := range d.preemptions.reserve {
		if r == nil {
			continue
		}
		pause := min(giveUpPause<<max(0, len(h.choices)-1), giveUpPauseMax)
		if waited := h.now.Sub(h.givenUp); !h.givenUp.IsZero() && waited < pause {
			t.Fatalf("place %d was chosen %s after one was given up, want %s", len(h.choices)+1, waited, pause)
		}
		h.givenUp, h.choices = time.Time{}, append(h.choices, h.now)
	}
}

// evict evicts the pods that are due and that no budget holds, at most two of a node within a minute.
func (h *preemptionHistory) evict(t *rapid.T, held func(types.UID) bool) {
	for uid, p := range h.announced {
		pod := h.pods[uid]
		recent := slices.DeleteFunc(slices.Clone(h.evictions[pod.node]), func(at time.Time) bool { return h.now.Sub(at) >= time.Minute })
		if h.now.Before(p.At) || held(uid) || len(recent) >= 2 {
			continue
		}
		if !pod.Preemptible || pod.Priority >= v1alpha1.PriorityInteractive || !pod.Governed {
			t.Fatalf("evicted %s: %+v", uid, pod.Pod)
		}
		pod.gone = true
		h.evictions[pod.node] = append(h.evictions[pod.node], h.now)
		delete(h.announced, uid)
	}
}

// Guards: with budgets, slow exits, lost agents, restarts and crashes at each write, only preemptible pods of one GPU are
// evicted, and in the end the claimant has room or a reason.
func TestPreemptionHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := &preemptionHistory{now: startTime, pods: map[types.UID]*historyPod{}, evictions: map[string][]time.Time{}}
		h.testSnapshot = newTestSnapshot(t, []string{"a100:"}, []string{"a100:"}).withHolders(none)
		for _, name := range []string{"n1", "n2"} {
			for start := range 7 {
				uid := types.UID(fmt.Sprintf("%s-%d", name, start))
				h.pods[uid] = &historyPod{node: name, start: start, Pod: preemption.Pod{
					UID: uid, Name: types.NamespacedName{Namespace: "ns", Name: string(uid)}, Priority: v1alpha1.PriorityTrain,
					Preemptible: rapid.IntRange(0, 19).Draw(rt, "class") > 0, Governed: true, Running: true, Root: string(uid), Milli: 143,
					StartedAt: startTime.Add(-time.Duration(rapid.IntRange(0, 30).Draw(rt, "age")) * time.Minute),
				}}
			}
		}
		h.holder = func(uid types.UID) (preemption.Pod, bool) {
			if p := h.pods[uid]; p != nil && !p.gone {
				return p.Pod, true
			}
			return preemption.Pod{}, false
		}
		h.report()
		h.withPendingPod("p", "7g.40gb", claimant)
		lost, calm, served := false, 0, false
		for step := 0; !served && calm < 360; step++ {
			h.now = h.now.Add(10 * time.Second)
			writes, heldBy := 100, -1
			if step < 200 {
				switch rapid.IntRange(0, 24).Draw(rt, "event") {
				case 0:
					lost = !lost
				case 1:
					h.previousState = planState{}
				case 2:
					writes, h.previousState = rapid.IntRange(0, 8).Draw(rt, "writes"), planState{}
				}
				heldBy = rapid.IntRange(-1, 6).Draw(rt, "budget")
			} else {
				lost = false
				calm++
			}
			for _, p := range h.pods {
				p.exited = p.exited || p.gone && (step >= 200 || rapid.IntRange(0, 5).Draw(rt, "exit") == 0)
			}
			if !lost {
				h.report()
			}
			var explained bool
			served, explained = h.step(rt, writes)
			if calm == 360 && !served && !explained {
				rt.Fatal("the claimant has neither room nor a reason")
			}
			h.evict(rt, func(uid types.UID) bool { return h.pods[uid].start == heldBy })
		}
		if len(h.evictions["n1"]) > 0 && len(h.evictions["n2"]) > 0 {
			rt.Fatalf("pods of two GPUs were evicted for one claimant: %v", h.evictions)
		}
		evictable := slices.ContainsFunc([]string{"n1", "n2"}, func(name string) bool {
			for _, p := range h.pods {
				if p.node == name && !p.Preemptible {
					return false
				}
			}
			return true
		})
		if evictable != served {
			rt.Fatalf("a GPU can be freed: %t, and the claimant has room: %t", evictable, served)
		}
	})
}
