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
		c.expectRan(jobKind, "second", 40*time.Hour+10*time.Minute)
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
