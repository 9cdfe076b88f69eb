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

// createRunningClocks has workloads with a clock that run, of which some end within the hour.
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

// createStopLimiterState has the brake's ConfigMap say this.
func (c *fakeCluster) createStopLimiterState(data map[string]string) {
	c.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: StopLimiterConfigMapName}, Data: data}
	if err := c.client.Create(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
}

// stopLimiterData is what the ConfigMap says now.
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
		says, want   map[string]string
		permits      bool
	}{
		"few of many end":              {running: 30, due: 5, permits: true},
		"many end, but few of all":     {running: 30, due: 9, permits: true},
		"most end, but they are few":   {running: 5, due: 5, permits: true},
		"many, and very many of all":   {running: 10, due: 6, want: engagedNow},
		"it stays engaged":             {running: 30, due: 1, says: map[string]string{StopLimiterEngagedAt: at(-48 * time.Hour), StopLimiterDue: "6", StopLimiterRunning: "10"}, want: map[string]string{StopLimiterEngagedAt: at(-48 * time.Hour), StopLimiterDue: "6", StopLimiterRunning: "10"}},
		"it was released":              {running: 10, due: 6, says: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: at(time.Second)}, want: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: at(time.Second)}, permits: true},
		"its release is over":          {running: 10, due: 2, says: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: at(0)}, want: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: at(0)}, permits: true},
		"its release is over too soon": {running: 10, due: 6, says: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: at(0)}, want: map[string]string{StopLimiterEngagedAt: at(0), StopLimiterDue: "6", StopLimiterRunning: "10", StopLimiterReleasedUntil: at(0)}},
		"engaged as its release ended": {running: 10, due: 1, says: map[string]string{StopLimiterEngagedAt: at(0), StopLimiterReleasedUntil: at(0)}, want: map[string]string{StopLimiterEngagedAt: at(0), StopLimiterReleasedUntil: at(0)}},
		"what nobody can read":         {running: 10, due: 2, says: map[string]string{StopLimiterEngagedAt: "noon", StopLimiterReleasedUntil: "later"}, want: map[string]string{StopLimiterEngagedAt: "noon", StopLimiterReleasedUntil: "later"}, permits: true},
		"a release nobody can read":    {running: 10, due: 2, says: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: "2h"}, want: map[string]string{StopLimiterEngagedAt: at(-time.Hour), StopLimiterReleasedUntil: "2h"}},
		"unreadable, and very many":    {running: 10, due: 6, says: map[string]string{StopLimiterEngagedAt: "noon"}, want: engagedNow},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newFakeCluster(t)
			c.createRunningClocks(tc.running, tc.due, now)
			if tc.says != nil {
				c.createStopLimiterState(tc.says)
			}
			for range 2 { // a restart changes nothing
				c.reconciler.StopLimiter.MaxCount = 5
				permits, err := c.reconciler.StopLimiter.Allow(t.Context(), now)
				if err != nil || permits != tc.permits {
					t.Errorf("permits %v, %v; want %v", permits, err, tc.permits)
				}
				if diff := cmp.Diff(tc.want, c.stopLimiterData()); diff != "" {
					t.Errorf("the ConfigMap (-want +got):\n%s", diff)
				}
				c.restart()
			}
		})
	}
}

// Those that it stopped a moment ago count, too: the brake is for what ends within
// an hour, not for what ends at once.
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
		if permits, err := c.reconciler.StopLimiter.Allow(t.Context(), now); err != nil || permits != want {
			t.Errorf("stopped %s ago: permits %v, %v; want %v", ago, permits, err, want)
		}
	}
}

// What the brake holds runs on until it is released, and then is stopped soon.
func TestStopLimiterDefersStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		c.reconciler.StopLimiter.MaxCount, c.reconciler.StopLimiter.MaxShare = 0, 0
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(48*time.Hour + time.Minute)
		if isSuspended(c, "train") {
			t.Fatal("it was stopped although the brake is engaged")
		}
		writes := c.calls
		c.advance(2 * time.Hour)
		if c.calls != writes {
			t.Errorf("%d writes while the brake holds it", c.calls-writes)
		}
		if state := c.listClocks()[0].Status.State; state != v1alpha1.ClockStateRunning {
			t.Errorf("its clock says %s", state)
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
			t.Error("it runs on although the brake was released")
		}
	})
}

func isSuspended(c *fakeCluster, name string) bool {
	spec := c.getJob(name).Spec
	return spec.Suspend != nil && *spec.Suspend
}

// What was counted a moment ago is good only for as many stops as could not have
// been too many, however quickly they follow one another.
func TestStopLimiterCountsConcurrentStops(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	c := newFakeCluster(t)
	c.createRunningClocks(10, 0, now)
	c.reconciler.StopLimiter.MaxCount, c.reconciler.StopLimiter.MaxShare = 5, 0.3
	permits := 0
	for ; permits < 20; permits++ {
		permitted, err := c.reconciler.StopLimiter.Allow(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		if !permitted {
			break
		}
		if permits == 0 { // since then, all of them end within the hour
			clocks := c.listClocks()
			for i := range clocks {
				clocks[i].Status.Deadline.At.Time = now.Add(time.Minute)
				if err := c.client.Status().Update(t.Context(), &clocks[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if permits > 6 {
		t.Errorf("%d stops were permitted, want 6 at most", permits)
	}
}
