// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/lifecycle/podcache"
)

// Protects the time limit and invariant 12: a pod whose Job was deleted without it continues the Job's
// time, for the user who created the Job, and is evicted at the limit. So it is after a restart.
func TestOrphanedPodContinuesTimeOfItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(40 * time.Hour)
		pod := c.orphan(jobKind, "work")
		c.advance(time.Hour)
		c.expectRan(podKind, pod.Name, 41*time.Hour)
		if s := c.clockStatus(podKind, pod.Name); s.CreatedBy != alice {
			t.Errorf("its time counts for %q", s.CreatedBy)
		}
		c.restart()
		c.advance(5 * time.Hour)
		c.expectRan(podKind, pod.Name, 46*time.Hour)
		c.advance(4 * time.Hour)
		if s := c.clockStatus(podKind, pod.Name); s.Stopped == nil {
			t.Errorf("it runs on at its limit: %+v", s)
		}
	})
}

// Protects the time limit: a Job that replaces the orphaned pod continues its time.
func TestCopyOfOrphanedPodContinuesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(30 * time.Hour)
		pod := c.orphan(jobKind, "work")
		c.advance(time.Hour)
		c.delete(podKind, pod.Name)
		c.create(jobKind, "copy", alice)
		c.advance(time.Hour)
		c.expectRan(jobKind, "copy", 32*time.Hour)
	})
}

// A pod that its owner releases when it is deleted itself continues no time, and neither does another
// user's workload that the owner's name is given to.
func TestTerminatingPodPassesNoTimeOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(30 * time.Hour)
		pod := c.pods["root-1-pod"]
		c.terminate(pod.UID)
		released := *pod
		released.Controller = podcache.Owner{}
		c.pods[pod.UID] = &released
		c.workloads.handlePodChange(podcache.Change{Before: pod, After: &released})
		c.advance(0)
		if s := c.clockStatus(jobKind, "work"); s.Successor != "" {
			t.Errorf("its Job passed its time on to %s", s.Successor)
		}
	})
}
