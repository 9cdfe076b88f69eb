// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/migplan/preemption"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// claimant makes a pending pod one for which others may be preempted.
func claimant(w *podRequest) { w.guaranteed, w.priority = true, v1alpha1.PriorityInteractive }

// withHolders lets the snapshot find the pods that hold instances: training that has run for an hour, with changes.
func (s *testSnapshot) withHolders(change func(*preemption.Pod)) *testSnapshot {
	s.announced = map[types.UID]*eviction.AnnouncedPod{}
	for i := range s.pools {
		s.pools[i].minimumRuntime = v1alpha1.DefaultMinimumRuntime
	}
	s.holder = func(uid types.UID) (preemption.Pod, bool) {
		pod := preemption.Pod{
			UID: uid, Name: types.NamespacedName{Namespace: "ns", Name: string(uid)}, Priority: v1alpha1.PriorityTrain, Preemptible: true,
			Governed: true, Running: true, StartedAt: startTime.Add(-time.Hour), Root: string(uid), Milli: 571,
		}
		change(&pod)
		return pod, pod.UID != ""
	}
	return s
}

// withReservation reserves the first GPU of a node as a whole for a pod.
func (s *testSnapshot) withReservation(node string, pod types.UID) *testSnapshot {
	for i := range s.nodes {
		if s.nodes[i].name == node {
			s.nodes[i].reservation = &preemption.Reservation{Claimant: pod, GPU: gpuUUID(node, 0), Profile: "7g.40gb", Since: startTime.Add(-time.Minute)}
		}
	}
	return s
}

// withAnnounced announces the eviction of a pod for a claimant.
func (s *testSnapshot) withAnnounced(pod, claimant types.UID, in time.Duration) *testSnapshot {
	s.announced[pod] = &eviction.AnnouncedPod{
		Announcement: eviction.Announcement{UID: pod, Reason: v1alpha1.EndPreempted, Claimant: claimant}, At: startTime.Add(in),
	}
	return s
}

func none(*preemption.Pod) {}

func TestPreemption(t *testing.T) {
	scene := func(gpu string, change func(*preemption.Pod), pod ...func(*podRequest)) *testSnapshot {
		return newTestSnapshot(t, []string{gpu}).withHolders(change).withPendingPod("p", "7g.40gb", append([]func(*podRequest){claimant}, pod...)...)
	}
	const held = "a100: 4g.20gb@0!a 1g.5gb@4!b"
	tests := map[string]struct {
		scene *testSnapshot
		// reserved is the claimant of the reservation that is written, "-" if one is removed.
		reserved            string
		announce, withdrawn []types.UID
		taint               bool
		reason              bool
	}{
		"victims are chosen": {scene: scene(held, none), reserved: "p", announce: []types.UID{"a", "b"}, reason: true},
		"a pod without guarantee preempts none": {
			scene: scene(held, none, func(w *podRequest) { w.guaranteed = false }),
		},
		"room after a repartition": {scene: scene("a100: 4g.20gb@0", none), taint: true},
		"unschedulable for a moment": {
			scene: scene(held, none, func(w *podRequest) { w.unschedulableSince = startTime.Add(-preemptionDelay / 2) }),
		},
		"no pod may be preempted": {scene: scene(held, func(p *preemption.Pod) { p.Preemptible = p.UID != "b" }), reason: true},
		"several instances": {
			scene: scene(held, none, func(w *podRequest) { w.instanceRequests[0].count = 2 }), reason: true,
		},
		"announced, the deadline is ahead": {
			scene: scene(held, none).withReservation("n1", "p").withAnnounced("a", "p", time.Minute).withAnnounced("b", "p", time.Minute),
		},
		"a crash before the announcements": {scene: scene(held, none).withReservation("n1", "p"), announce: []types.UID{"a", "b"}},
		"shortly before the deadline": {
			scene: scene(held, none).withReservation("n1", "p").withAnnounced("a", "p", holdBefore).withAnnounced("b", "p", time.Minute),
			taint: true,
		},
		"the processes of the victims still end": {
			scene: scene("a100: 4g.20gb@0! 1g.5gb@4!", none).withReservation("n1", "p"), taint: true,
		},
		"a victim terminates": {
			scene: scene(held, func(p *preemption.Pod) { p.Terminating = true }).withReservation("n1", "p"), taint: true,
		},
		"a pod came in between": {
			scene:    scene(held, func(p *preemption.Pod) { p.Preemptible = p.UID == "a" }).withReservation("n1", "p").withAnnounced("a", "p", time.Minute),
			reserved: "-", withdrawn: []types.UID{"a"}, reason: true,
		},
		"the claimant is gone": {
			scene:    scene(held, none).withReservation("n1", "former").withAnnounced("a", "former", time.Minute).withAnnounced("b", "former", time.Minute),
			reserved: "p", announce: []types.UID{"a", "b"}, withdrawn: []types.UID{"a", "b"}, reason: true,
		},
		"the room of another claimant": {
			scene: scene(held, none, func(w *podRequest) { w.created = startTime }).withPendingPod("q", "7g.40gb", claimant).withReservation("n1", "q").
				withAnnounced("a", "q", time.Minute).withAnnounced("b", "q", time.Minute),
			reason: true,
		},
		"the agent does not answer": {
			scene: scene(held, none).updateGPUNode("n1", func(o *v1alpha1.GPUNode) { o.Status.SampledAt.Time = startTime.Add(-time.Hour) }), reason: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := decide(&test.scene.snapshot, startTime)
			p := &d.preemptions
			reserved := ""
			if r, written := p.reserve["n1"]; written && r == nil {
				reserved = "-"
			} else if written {
				reserved = string(r.Claimant)
			}
			var announced, withdrawn []types.UID
			for _, a := range p.announce {
				announced = append(announced, a.UID)
			}
			for _, w := range p.withdraw {
				withdrawn = append(withdrawn, w.announcement.UID)
			}
			taint := slices.ContainsFunc(d.actions, func(a action) bool { return a.verb == addTaint })
			if reserved != test.reserved || !slices.Equal(announced, test.announce) || !slices.Equal(withdrawn, test.withdrawn) ||
				taint != test.taint || (len(p.explain) > 0) != test.reason {
				t.Errorf("reserved %q, announced %v, withdrawn %v, taint %t, explained %v", reserved, announced, withdrawn, taint, p.explain)
			}
		})
	}
}

// After a place was given up, no other pods are announced for the claimant for a while, each time for longer. Other
// claimants do not wait.
func TestPauseAfterGivingUp(t *testing.T) {
	s := newTestSnapshot(t, []string{"a100: 4g.20gb@0!a"}, []string{"a100: 4g.20gb@0!b"}).withPendingPod("p", "7g.40gb", claimant)
	came := map[types.UID]bool{} // the pods that cannot be preempted by now
	s.withHolders(func(p *preemption.Pod) { p.Preemptible = !came[p.UID] })
	now := startTime
	step := func() *decision {
		for _, name := range []string{"n1", "n2"} {
			s.updateGPUNode(name, func(o *v1alpha1.GPUNode) { o.Status.SampledAt.Time = now })
		}
		d := decide(&s.snapshot, now)
		s.previousState = d.nextState
		for i := range s.nodes {
			if r, written := d.preemptions.reserve[s.nodes[i].name]; written {
				s.nodes[i].reservation = r
			}
		}
		return &d
	}
	chosen := func(d *decision) (victims []types.UID) {
		for _, a := range d.preemptions.announce {
			victims = append(victims, a.UID)
		}
		return victims
	}
	victim := chosen(step())
	for _, pause := range []time.Duration{giveUpPause, 2 * giveUpPause, 4 * giveUpPause, 8 * giveUpPause, giveUpPauseMax, giveUpPauseMax} {
		if len(victim) != 1 {
			t.Fatalf("chosen %v, want one pod", victim)
		}
		came = map[types.UID]bool{victim[0]: true}
		for _, after := range []time.Duration{0, pause - time.Second} {
			now = now.Add(after)
			d := step()
			if more := chosen(d); len(more) > 0 || len(d.preemptions.explain) != 1 {
				t.Errorf("%s after a place was given up %v is announced, explained %v", after, more, d.preemptions.explain)
			}
		}
		now = now.Add(time.Second)
		victim = chosen(step())
	}
	came = map[types.UID]bool{victim[0]: true}
	step()
	s.withPendingPod("q", "7g.40gb", claimant)
	if other := chosen(step()); len(other) != 1 {
		t.Errorf("another claimant waits: %v", other)
	}
}

// What is announced is announced again once by each process: a crash may have come before the Notice.
func TestAnnouncedPreemptionIsConfirmed(t *testing.T) {
	s := newTestSnapshot(t, []string{"a100: 4g.20gb@0!a"}).withHolders(none).withPendingPod("p", "7g.40gb", claimant).
		withReservation("n1", "p").withAnnounced("a", "p", time.Minute)
	d := decide(&s.snapshot, startTime)
	evictions := &recordedEvictions{}
	r := &Reconciler{Evictions: evictions}
	for range 3 {
		if err := r.announce(t.Context(), &d.preemptions); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(evictions.announced, []types.UID{"a"}) {
		t.Errorf("announced %v, want a once", evictions.announced)
	}
	evictions.err = errors.New("no answer")
	r = &Reconciler{Evictions: evictions}
	if err := r.announce(t.Context(), &d.preemptions); err == nil || len(r.complete) > 0 {
		t.Errorf("an error completes %v", r.complete)
	}
}

// recordedEvictions records the pods whose eviction is announced.
type recordedEvictions struct {
	announced []types.UID
	err       error
}

func (e *recordedEvictions) Announce(_ context.Context, a eviction.Announcement) error {
	e.announced = append(e.announced, a.UID)
	return e.err
}

func (e *recordedEvictions) Withdraw(context.Context, eviction.Announcement, string) error {
	return e.err
}

// Less urgent pods do not get the idle slices of a reserved GPU.
func TestReservedSlicesAreKept(t *testing.T) {
	s := newTestSnapshot(t, []string{"a100: 4g.20gb@0!a"}).withHolders(none).withPendingPod("p", "7g.40gb", claimant).
		withPendingPod("train", "1g.5gb", func(w *podRequest) { w.priority = v1alpha1.PriorityTrain }).withReservation("n1", "p").
		withAnnounced("a", "p", time.Minute)
	if d := decide(&s.snapshot, startTime); len(d.actions) > 0 || len(d.unmet) != 2 {
		t.Errorf("%d actions, unmet %v", len(d.actions), d.unmet)
	}
}

// A pod that takes the memory that others were promised is over its share, and gives way first.
func TestFindingsOverShare(t *testing.T) {
	finding := func(pod types.UID, reason v1alpha1.FindingReason) v1alpha1.Finding {
		return v1alpha1.Finding{PodUID: pod, Reason: reason}
	}
	over := overShare(map[string]*v1alpha1.GPUNode{"n1": {Status: v1alpha1.GPUNodeStatus{Findings: []v1alpha1.Finding{
		finding("a", v1alpha1.FindingShareExceeded), finding("b", v1alpha1.FindingMemoryConflict), finding("c", v1alpha1.FindingNotAllocated),
	}}}})
	if !over["a"] || !over["b"] || over["c"] {
		t.Errorf("over their share are %v, want a and b", over)
	}
}
