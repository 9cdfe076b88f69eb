// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// createRunningClocks creates clocks of running workloads, some of which end within the hour.
func (c *fakeCluster) createRunningClocks(running, due int, at time.Time) {
	c.t.Helper()
	for i := range running {
		one := &v1alpha1.WorkloadClock{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: fmt.Sprint("job-", i)}}
		one.Status.RunningSince = &metav1.Time{Time: at.Add(-time.Hour)}
		ends := at.Add(stopLimitWindow)
		if i < due {
			ends = ends.Add(-time.Second)
		}
		one.Status.Deadline = &v1alpha1.ClockDeadline{At: metav1.NewTime(ends), Reason: v1alpha1.EndMaxRuntime}
		if err := c.client.Create(c.t.Context(), one); err != nil {
			c.t.Fatal(err)
		}
	}
}

// createStopLimiterState creates the ConfigMap of the stop limiter.
func (c *fakeCluster) createStopLimiterState(data map[string]string) {
	c.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: StopLimiterConfigMapName}, Data: data}
	if err := c.client.Create(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
}

// stopLimiterData returns the data of the ConfigMap.
func (c *fakeCluster) stopLimiterData() map[string]string {
	c.t.Helper()
	var object corev1.ConfigMap
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: StopLimiterConfigMapName}
	if err := c.client.Get(c.t.Context(), key, &object); client.IgnoreNotFound(err) != nil {
		c.t.Fatal(err)
	}
	return object.Data
}

func TestStopLimiterAllow(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	engagedNow := map[string]string{StopLimiterEngagedAt: at(0), StopLimiterDue: "6", StopLimiterRunning: "10"}
	tests := map[string]struct {
		running, due int
		state, want  map[string]string
		allowed      bool
	}{
		"few of many":                    {running: 30, due: 5, allowed: true},
		"many, but a small share":        {running: 30, due: 9, allowed: true},
		"most, but few":                  {running: 5, due: 5, allowed: true},
		"many and a large share":         {running: 10, due: 6, want: engagedNow},
		"stays engaged":                  {running: 30, due: 1, state: map[string]string{StopLimiterEngagedAt: at(-48 * time.Hour), StopLimiterDue: "6", StopLimiterRunning: "10"}, want: map[string]string{StopLimiterEngagedAt: at(-48 * time.Hour), StopLimiterDue: "6", StopLimiterRunning: "10"}},
		"released":                       {running: 10, due: 6, state: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: at(time.Second)}, want: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: at(time.Second)}, allowed: true},
		"release ended":                  {running: 10, due: 2, state: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: at(0)}, want: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: at(0)}, allowed: true},
		"release ended too soon":         {running: 10, due: 6, state: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: at(0)}, want: map[string]string{StopLimiterEngagedAt: at(0), StopLimiterDue: "6", StopLimiterRunning: "10", StopLimiterReleasedUntil: at(0)}},
		"engaged when the release ended": {running: 10, due: 1, state: map[string]string{StopLimiterEngagedAt: at(0), StopLimiterReleasedUntil: at(0)}, want: map[string]string{StopLimiterEngagedAt: at(0), StopLimiterReleasedUntil: at(0)}},
		"malformed state":                {running: 10, due: 2, state: map[string]string{StopLimiterEngagedAt: "noon", StopLimiterReleasedUntil: "later"}, want: map[string]string{StopLimiterEngagedAt: "noon", StopLimiterReleasedUntil: "later"}, allowed: true},
		"malformed release":              {running: 10, due: 2, state: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: "2h"}, want: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: "2h"}},
		"malformed, and a large share":   {running: 10, due: 6, state: map[string]string{StopLimiterEngagedAt: "noon"}, want: engagedNow},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newFakeCluster(t)
			c.createRunningClocks(tc.running, tc.due, now)
			if tc.state != nil {
				c.createStopLimiterState(tc.state)
			}
			for range 2 { // a restart changes nothing
				c.reconciler.StopLimiter.MaxCount = 5
				allowed, err := c.reconciler.StopLimiter.Allow(t.Context(), now)
				if err != nil || allowed != tc.allowed {
					t.Errorf("allowed %v, %v; want %v", allowed, err, tc.allowed)
				}
				if diff := cmp.Diff(tc.want, c.stopLimiterData()); diff != "" {
					t.Errorf("the ConfigMap (-want +got):\n%s", diff)
				}
				c.restart()
			}
		})
	}
}

// Recent stops count, too: the limiter counts what ends within an hour, not what ends at
// once.
func TestStopLimiterCountsRecentStops(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]bool{59 * time.Minute: false, time.Hour: true} {
		c := newFakeCluster(t)
		for i := range 51 {
			one := &v1alpha1.WorkloadClock{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: fmt.Sprint("job-", i)}}
			one.Status.Stopped = &v1alpha1.ClockStop{At: metav1.NewTime(now.Add(-ago)), Reason: v1alpha1.EndMaxRuntime}
			if err := c.client.Create(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		if allowed, err := c.reconciler.StopLimiter.Allow(t.Context(), now); err != nil || allowed != want {
			t.Errorf("stopped %s ago: allowed %v, %v; want %v", ago, allowed, err, want)
		}
	}
}

// A workload whose stop is deferred runs until the limiter is released, and is stopped soon
// after.
func TestStopLimiterDefersStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		c.reconciler.StopLimiter.MaxCount, c.reconciler.StopLimiter.MaxShare = 0, 0
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(48*time.Hour + time.Minute)
		if isSuspended(c, "train") {
			t.Fatal("it was stopped although the limiter is engaged")
		}
		writes := c.calls
		c.advance(2 * time.Hour)
		if c.calls != writes {
			t.Errorf("%d writes while the stop is deferred", c.calls-writes)
		}
		if state := c.listClocks()[0].Status.State; state != v1alpha1.ClockStateRunning {
			t.Errorf("its clock has %s", state)
		}
		var object corev1.ConfigMap
		if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: StopLimiterConfigMapName}, &object); err != nil {
			t.Fatal(err)
		}
		object.Data[StopLimiterReleasedUntil] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		if err := c.client.Update(t.Context(), &object); err != nil {
			t.Fatal(err)
		}
		c.advance(stopLimiterRequeue + time.Second)
		if !isSuspended(c, "train") {
			t.Error("it still runs although the limiter was released")
		}
	})
}

func isSuspended(c *fakeCluster, name string) bool {
	spec := c.getJob(name).Spec
	return spec.Suspend != nil && *spec.Suspend
}

// A recent count is valid only for as many stops as cannot exceed the limit, however quickly
// they follow each other.
func TestStopLimiterCountsConcurrentStops(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	c := newFakeCluster(t)
	c.createRunningClocks(10, 0, now)
	c.reconciler.StopLimiter.MaxCount, c.reconciler.StopLimiter.MaxShare = 5, 0.3
	allowed := 0
	for ; allowed < 20; allowed++ {
		permitted, err := c.reconciler.StopLimiter.Allow(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		if !permitted {
			break
		}
		if allowed == 0 { // now all of them end within the hour
			clocks := c.listClocks()
			for i := range clocks {
				clocks[i].Status.Deadline.At.Time = now.Add(time.Minute)
				if err := c.client.Status().Update(t.Context(), &clocks[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if allowed > 6 {
		t.Errorf("%d stops were allowed, want at most 6", allowed)
	}
}
