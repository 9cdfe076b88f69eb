// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
)

// Protects the time limit: a copy of a workload that its user paused continues its clock, and
// another copy does not. Another user's copy has a clock of its own.
func TestPausedWorkloadPassesItsTimeToOneCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(40 * time.Hour)
		c.pause("work")
		c.create(jobKind, "bobs", bob)
		c.create(jobKind, "copy", alice)
		c.create(jobKind, "second", alice)
		c.advance(time.Hour)
		c.expectRan(jobKind, "copy", 41*time.Hour)
		c.expectRan(jobKind, "second", time.Hour)
		c.expectRan(jobKind, "bobs", time.Hour)
	})
}

// Protects the time limit: two workloads that take turns have one clock, and the one that
// reaches the limit stops both. So it is when they ran together for a moment at first.
func TestWorkloadsThatTakeTurnsHaveOneClock(t *testing.T) {
	for _, together := range []time.Duration{0, time.Minute} {
		t.Run(together.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTeamCluster(t)
				running, paused := "first", "second"
				c.create(jobKind, running, alice)
				if together > 0 {
					c.create(jobKind, paused, alice)
					c.advance(together)
					c.pause(paused)
				}
				ran := together
				for turn := range 5 { // each waits for longer than resetAfter, except in the first turn
					c.advance(8 * time.Hour)
					ran += 8 * time.Hour
					c.pause(running)
					running, paused = paused, running
					if turn == 0 && together == 0 {
						c.create(jobKind, running, alice)
					} else {
						c.resume(running)
					}
					c.expectRan(jobKind, running, ran)
				}
				c.advance(8 * time.Hour)
				if !ptr.Deref(c.getJob(running).Spec.Suspend, false) {
					t.Fatalf("%s runs after %s", running, ran+8*time.Hour)
				}
				c.resume(paused)
				c.advance(time.Minute)
				if !ptr.Deref(c.getJob(paused).Spec.Suspend, false) {
					t.Errorf("%s runs although its copy was stopped", paused)
				}
			})
		})
	}
}

// Protects invariant 12 and sweeps: workloads with one template that ran at the same time keep
// their own clocks when their user pauses and resumes some of them.
func TestSweepTakesNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		for i := range 4 {
			c.create(jobKind, fmt.Sprint("agent-", i), alice)
			c.advance(5 * time.Hour)
		}
		for i := range 3 {
			c.pause(fmt.Sprint("agent-", i))
		}
		c.advance(10 * time.Minute)
		c.resume("agent-2")
		c.advance(20 * time.Minute)
		c.expectRan(jobKind, "agent-2", 10*time.Hour+20*time.Minute)
		c.expectRan(jobKind, "agent-3", 5*time.Hour+30*time.Minute)
		evicted := c.getObject(jobKind, "agent-3")
		c.endPods(evicted.GetUID())
		c.advance(time.Minute)
		c.startRootPod(evicted)
		c.advance(10 * time.Minute)
		c.expectRan(jobKind, "agent-3", 5*time.Hour+40*time.Minute)
	})
}

// Protects the time limit: workloads that take turns in any order, also if they run together for a
// moment at each change, have the time of one. Time in which two run counts once.
func TestTurnsHaveTheTimeOfOneWorkload(t *testing.T) {
	type turn struct{ next, hours, overlap, pause int }
	limitChecks(t)
	rapid.Check(t, func(rt *rapid.T) {
		turns := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) turn {
			return turn{
				next: rapid.IntRange(1, 2).Draw(t, "next"), hours: rapid.IntRange(2, 15).Draw(t, "hours"),
				overlap: rapid.SampledFrom([]int{0, 0, 1, 20, 31, 58}).Draw(t, "overlap"), pause: rapid.SampledFrom([]int{0, 1, 50}).Draw(t, "pause"),
			}
		}), 40, 40).Draw(rt, "turns")
		fault := ""
		synctest.Test(t, func(t *testing.T) {
			c := newTeamCluster(t)
			exists, running, ran := map[int]bool{0: true}, 0, time.Duration(0)
			name := func(n int) string { return fmt.Sprint("work-", n) }
			c.create(jobKind, name(0), alice)
			run := func(n int) {
				if running = n; !exists[n] {
					exists[n] = true
					c.create(jobKind, name(n), alice)
					return
				}
				c.resume(name(n))
			}
			for _, turn := range turns {
				c.advance(time.Duration(turn.hours) * time.Hour)
				ran += time.Duration(turn.hours) * time.Hour
				if ptr.Deref(c.getJob(name(running)).Spec.Suspend, false) {
					break // at the limit
				}
				if ran > teamLimit+teamLead+teamTolerance {
					fault = fmt.Sprintf("%s runs after the %d workloads ran for %s in turns", name(running), len(exists), ran)
					return
				}
				before, next := running, (running+turn.next)%3
				if turn.overlap > 0 {
					run(next)
					c.advance(time.Duration(turn.overlap) * time.Minute)
					ran += time.Duration(turn.overlap) * time.Minute
					if ptr.Deref(c.getJob(name(before)).Spec.Suspend, false) {
						break
					}
					c.pause(name(before))
					continue
				}
				c.pause(name(before))
				c.advance(time.Duration(turn.pause) * time.Minute)
				run(next)
			}
			if ran < teamLimit-teamTolerance {
				fault = fmt.Sprintf("stopped after %s in turns", ran)
			}
		})
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}

// A workload that Kueue suspended passes no time to a copy: its user did not pause it.
func TestWorkloadPausedByKueueKeepsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice, func(object *unstructured.Unstructured) {
			object.SetLabels(map[string]string{v1alpha1.LabelKueueQueue: "default"})
		})
		active := c.queue("work")
		c.advance(40 * time.Hour)
		c.pause("work")
		c.create(jobKind, "copy", alice)
		c.advance(10 * time.Minute)
		c.expectRan(jobKind, "copy", 10*time.Minute)
		active(false)
		c.create(jobKind, "second", alice)
		c.advance(10 * time.Minute)
		// The one that is reconciled first continues it: both started soon before or after the pause.
		if copyRan := 40*time.Hour + 20*time.Minute; c.ranTime(jobKind, "copy") == copyRan {
			c.expectRan(jobKind, "second", 10*time.Minute)
		} else {
			c.expectRan(jobKind, "copy", 20*time.Minute)
			c.expectRan(jobKind, "second", 40*time.Hour+10*time.Minute)
		}
	})
}

// A paused workload passes no time on after resetAfter.
func TestPausedWorkloadIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(40 * time.Hour)
		c.pause("work")
		c.advance(61 * time.Minute)
		c.create(jobKind, "copy", alice)
		c.advance(time.Hour)
		c.expectRan(jobKind, "copy", time.Hour)
	})
}
