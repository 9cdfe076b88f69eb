// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Of the user who has most clocks the oldest ended ones go, and none of another user if that is not enough.
func TestChosenClocks(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	clocks := func(user string, kept, ended int) (list []v1alpha1.WorkloadClock) {
		for i := range kept + ended {
			c := v1alpha1.WorkloadClock{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", user, i)}}
			c.Status.CreatedBy = user
			if i >= kept {
				c.Status.PausedSince = &metav1.Time{Time: start.Add(-time.Duration(i) * time.Minute)}
			}
			list = append(list, c)
		}
		return list
	}
	for name, tc := range map[string]struct {
		clocks []v1alpha1.WorkloadClock
		want   []string
	}{
		"few":                       {clocks("a", 0, 10), nil},
		"one user":                  {clocks("a", 3, 10), []string{"a-12", "a-11", "a-10"}},
		"the one who has most":      {slices.Concat(clocks("a", 0, 3), clocks("b", 0, 9)), []string{"b-8", "b-7"}},
		"two who have most":         {slices.Concat(clocks("a", 0, 6), clocks("b", 0, 6)), []string{"a-5", "b-5"}},
		"until others have as many": {slices.Concat(clocks("a", 0, 7), clocks("b", 0, 9)), []string{"b-8", "b-7", "a-6", "b-6", "a-5", "b-5"}},
		"none may go":               {slices.Concat(clocks("a", 0, 5), clocks("b", 9, 1)), []string{"b-9"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range chooseClocks(tc.clocks, 10, func(c *v1alpha1.WorkloadClock) bool { return c.Status.PausedSince != nil }) {
				got = append(got, c.Name)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// A namespace with too many clocks loses those of ended workloads whose time no user can continue, as soon as it gets another one.
func TestClocksOfANamespaceAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("last"))
		waitForWholeSecond()
		now := time.Now()
		add := func(count int, name string, status v1alpha1.WorkloadClockStatus) {
			for i := range count {
				clock := &v1alpha1.WorkloadClock{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: fmt.Sprintf("%s-%d", name, i)}}
				clock.Spec.Root = v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: clock.Name}
				clock.Status = status
				clock.Status.CreatedBy = "anna@example.org"
				if err := c.rawClient.Create(t.Context(), clock); err != nil {
					t.Fatal(err)
				}
			}
		}
		past := &metav1.Time{Time: now.Add(-2 * time.Hour)}
		add(800, "completed", v1alpha1.WorkloadClockStatus{State: v1alpha1.ClockStatePaused, PausedSince: past, CompletedAt: past, AccumulatedSeconds: 90})
		add(50, "reset", v1alpha1.WorkloadClockStatus{State: v1alpha1.ClockStatePaused, PausedSince: past, LastRunningSince: past, AccumulatedSeconds: 10})
		add(50, "continued", v1alpha1.WorkloadClockStatus{State: v1alpha1.ClockStatePaused, PausedSince: &metav1.Time{Time: now}, LastRunningSince: past, AccumulatedSeconds: 10})
		add(50, "stopped", v1alpha1.WorkloadClockStatus{State: v1alpha1.ClockStatePaused, PausedSince: past, Stopped: &v1alpha1.ClockStop{Reason: v1alpha1.EndMaxRuntime, Until: &metav1.Time{Time: now.Add(time.Hour)}}})
		c.startPod("last", "-1")
		c.advance(time.Second)
		left := map[string]int{}
		for _, clock := range c.listClocks() {
			left[clock.Name[:4]]++
		}
		if left["comp"]+left["rese"] != fewerClocks-101 || left["cont"] != 50 || left["stop"] != 50 {
			t.Errorf("%v", left)
		}
	})
}

// The clock of a workload that ran for less than a minute is deleted once its time is reset, if it was not stopped.
func TestBriefClocksAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("brief"), newJob("longer"))
		waitForWholeSecond()
		c.startPod("longer", "-1")
		c.advance(time.Minute)
		c.startPod("brief", "-1")
		c.advance(30 * time.Second)
		clear(c.pods)
		c.advance(time.Second)
		for _, name := range []string{"brief", "longer"} {
			if err := c.rawClient.Delete(t.Context(), c.getJob(name)); err != nil {
				t.Fatal(err)
			}
		}
		for _, tc := range []struct {
			wait time.Duration
			want int
		}{{0, 2}, {v1alpha1.DefaultResetAfter.Length() - time.Second, 2}, {2 * time.Second, 1}, {29 * 24 * time.Hour, 1}} {
			c.advance(tc.wait)
			if err := c.reconciler.removeExpiredClocks(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := c.listClocks(); len(got) != tc.want {
				t.Errorf("after %s: %d clocks, want %d", tc.wait, len(got), tc.want)
			}
		}
	})
}
