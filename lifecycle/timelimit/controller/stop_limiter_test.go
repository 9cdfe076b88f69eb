// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// newShortenedLimit returns the limit of a running workload whose department shortened it.
func newShortenedLimit() *v1alpha1.ClockLimit {
	former, limit := period.MustParseDuration("48h"), period.MustParseDuration("24h")
	return &v1alpha1.ClockLimit{Configured: limit, InForce: limit, ShortenedFrom: &former}
}

// createRunningClocks creates clocks of running workloads, some of which end within the hour,
// with their limit.
func (c *fakeCluster) createRunningClocks(running, due int, at time.Time, limit *v1alpha1.ClockLimit) {
	c.t.Helper()
	for i := range running {
		one := &v1alpha1.WorkloadClock{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: fmt.Sprint("job-", i)}}
		one.Status.RunningSince = &metav1.Time{Time: at.Add(-time.Hour)}
		ends := at.Add(stopLimitWindow)
		if i < due {
			ends = ends.Add(-time.Second)
		}
		one.Status.Limit = limit
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

// stopLimiterConfigMap returns the ConfigMap, empty if there is none.
func (c *fakeCluster) stopLimiterConfigMap() *corev1.ConfigMap {
	c.t.Helper()
	object := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: StopLimiterConfigMapName}
	if err := c.client.Get(c.t.Context(), key, object); client.IgnoreNotFound(err) != nil {
		c.t.Fatal(err)
	}
	return object
}

// releaseStopLimiter releases the limiter in a department, as an administrator does.
func (c *fakeCluster) releaseStopLimiter(department string, until time.Time) {
	c.t.Helper()
	object := c.stopLimiterConfigMap()
	state := ParseStopLimiterState(object, department)
	state.ReleasedUntil = until.UTC()
	state.Store(object, department)
	if err := c.client.Update(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
}

// setMaxRuntime changes the department's limit.
func (c *fakeCluster) setMaxRuntime(limit string) {
	c.t.Helper()
	var department v1alpha1.Department
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Name: testDepartment}, &department); err != nil {
		c.t.Fatal(err)
	}
	terms := department.Spec.Workloads[v1alpha1.AnyWorkload]
	length := period.MustParseDuration(limit)
	terms.MaxRuntime = &length
	department.Spec.Workloads[v1alpha1.AnyWorkload] = terms
	if err := c.client.Update(c.t.Context(), &department); err != nil {
		c.t.Fatal(err)
	}
}

func TestStopLimiterAllow(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	engagedNow := StopLimiterState{EngagedAt: now, Due: 6, Running: 10}
	tests := map[string]struct {
		running, due int
		state, want  StopLimiterState
		allowed      bool
	}{
		"few of many":             {running: 30, due: 5, allowed: true},
		"many, but a small share": {running: 30, due: 9, allowed: true},
		"most, but few":           {running: 5, due: 5, allowed: true},
		"many and a large share":  {running: 10, due: 6, want: engagedNow},
		"stays engaged": {
			running: 30, due: 1,
			state: StopLimiterState{EngagedAt: at(-48 * time.Hour), Due: 6, Running: 10},
			want:  StopLimiterState{EngagedAt: at(-48 * time.Hour), Due: 6, Running: 10},
		},
		"released": {
			running: 10, due: 6, allowed: true,
			state: StopLimiterState{EngagedAt: at(-time.Hour), ReleasedUntil: at(time.Second)},
			want:  StopLimiterState{EngagedAt: at(-time.Hour), ReleasedUntil: at(time.Second)},
		},
		"release ended": {
			running: 10, due: 2, allowed: true,
			state: StopLimiterState{EngagedAt: at(-time.Hour), ReleasedUntil: now},
			want:  StopLimiterState{EngagedAt: at(-time.Hour), ReleasedUntil: now},
		},
		"release ended too soon": {
			running: 10, due: 6,
			state: StopLimiterState{EngagedAt: at(-time.Hour), ReleasedUntil: now},
			want:  StopLimiterState{EngagedAt: now, Due: 6, Running: 10, ReleasedUntil: now},
		},
		"engaged when the release ended": {
			running: 10, due: 1,
			state: StopLimiterState{EngagedAt: now, ReleasedUntil: now}, want: StopLimiterState{EngagedAt: now, ReleasedUntil: now},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newFakeCluster(t)
			c.createRunningClocks(tc.running, tc.due, now, newShortenedLimit())
			if tc.state != (StopLimiterState{}) {
				object := &corev1.ConfigMap{}
				tc.state.Store(object, testDepartment)
				c.createStopLimiterState(object.Data)
			}
			for range 2 { // a restart changes nothing
				c.reconciler.StopLimiter.MaxCount = 5
				allowed, err := c.reconciler.StopLimiter.Allow(t.Context(), testDepartment, now)
				if err != nil || allowed != tc.allowed {
					t.Errorf("allowed %v, %v; want %v", allowed, err, tc.allowed)
				}
				if diff := cmp.Diff(tc.want, ParseStopLimiterState(c.stopLimiterConfigMap(), testDepartment)); diff != "" {
					t.Errorf("the state (-want +got):\n%s", diff)
				}
				c.restart()
			}
		})
	}
}

// A malformed state counts as none: the limiter counts again.
func TestStopLimiterCountsAgainWithMalformedState(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	for _, text := range []string{"", "noon", `{"engagedAt": "noon"}`, `{"stopsDue": -1}`, `[]`} {
		for due, want := range map[int]bool{2: true, 6: false} {
			c := newFakeCluster(t)
			c.createRunningClocks(10, due, now, newShortenedLimit())
			c.createStopLimiterState(map[string]string{testDepartment: text, "other": "kept"})
			c.reconciler.StopLimiter.MaxCount = 5
			if allowed, err := c.reconciler.StopLimiter.Allow(t.Context(), testDepartment, now); err != nil || allowed != want {
				t.Errorf("state %q, %d due: allowed %v, %v; want %v", text, due, allowed, err, want)
			}
			object := c.stopLimiterConfigMap()
			if engaged := ParseStopLimiterState(object, testDepartment).IsEngaged(); engaged == want || object.Data["other"] != "kept" {
				t.Errorf("state %q, %d due: the ConfigMap has %v", text, due, object.Data)
			}
		}
	}
}

// Invariant 12: sixty workloads that end when their people chose, at the unchanged limit or
// because they are idle, hold no stop, however many of the department they are.
func TestStopLimiterCountsOnlyEndsBroughtForward(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	unchanged := newShortenedLimit()
	unchanged.ShortenedFrom = nil
	tests := map[string]struct {
		limit   *v1alpha1.ClockLimit
		reason  v1alpha1.EndReason
		allowed bool
	}{
		"a limit that the department shortened": {newShortenedLimit(), v1alpha1.EndMaxRuntime, false},
		"an unchanged or a chosen limit":        {unchanged, v1alpha1.EndMaxRuntime, true},
		"idle":                                  {newShortenedLimit(), v1alpha1.EndIdle, true},
		"a step of the controller's own":        {unchanged, v1alpha1.EndPreempted, false},
		"a suspension by unchanged terms":       {unchanged, v1alpha1.EndProjectSuspended, true},
	}
	for name, tc := range tests {
		for _, stopped := range []bool{false, true} {
			c := newFakeCluster(t)
			c.createRunningClocks(60, 60, now, tc.limit)
			clocks := c.listClocks()
			for i := range clocks {
				clocks[i].Status.Deadline.Reason = tc.reason
				if stopped {
					clocks[i].Status.Deadline = nil
					clocks[i].Status.Stopped = &v1alpha1.ClockStop{At: metav1.NewTime(now.Add(-time.Minute)), Reason: tc.reason}
				}
				if err := c.client.Status().Update(t.Context(), &clocks[i]); err != nil {
					t.Fatal(err)
				}
			}
			if allowed, err := c.reconciler.StopLimiter.Allow(t.Context(), testDepartment, now); err != nil || allowed != tc.allowed {
				t.Errorf("%s, stopped %v: allowed %v, %v; want %v", name, stopped, allowed, err, tc.allowed)
			}
		}
	}
}

// A mistake in one department holds no stop of another one.
func TestStopLimiterCountsPerDepartment(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	c := newFakeCluster(t)
	c.createRunningClocks(60, 60, now, newShortenedLimit())
	for _, department := range []string{"researchers", testDepartment, "researchers"} {
		allowed, err := c.reconciler.StopLimiter.Allow(t.Context(), department, now)
		if err != nil || allowed != (department != testDepartment) {
			t.Errorf("department %s: allowed %v, %v", department, allowed, err)
		}
	}
	if got := StopLimiterDepartments(c.stopLimiterConfigMap()); !slices.Equal(got, []string{testDepartment}) {
		t.Errorf("the limiter is recorded for %v", got)
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
			one.Status.Limit = newShortenedLimit()
			one.Status.Stopped = &v1alpha1.ClockStop{At: metav1.NewTime(now.Add(-ago)), Reason: v1alpha1.EndMaxRuntime}
			if err := c.client.Create(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		if allowed, err := c.reconciler.StopLimiter.Allow(t.Context(), testDepartment, now); err != nil || allowed != want {
			t.Errorf("stopped %s ago: allowed %v, %v; want %v", ago, allowed, err, want)
		}
	}
}

// A workload whose end was brought forward runs until the limiter is released, and is stopped
// soon after. Another one, whose limit is its own choice, is stopped meanwhile.
func TestStopLimiterDefersStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"), newJob("short"))
		c.reconciler.StopLimiter.MaxCount, c.reconciler.StopLimiter.MaxShare = 0, 0
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.startPod("short", "-1")
		c.pods["short-1"].MaxRuntime = period.MustParseDuration("40h")
		c.advance(time.Hour)
		c.setMaxRuntime("41h")
		c.advance(40*time.Hour + time.Minute)
		if isSuspended(c, "train") {
			t.Fatal("it was stopped although the limiter is engaged")
		}
		if !isSuspended(c, "short") {
			t.Error("a workload whose limit is its own choice still runs")
		}
		writes := c.calls
		c.advance(2 * time.Hour)
		if c.calls != writes {
			t.Errorf("%d writes while the stop is deferred", c.calls-writes)
		}
		if state := c.clockOf("train").Status.State; state != v1alpha1.ClockStateRunning {
			t.Errorf("its clock has %s", state)
		}
		c.releaseStopLimiter(testDepartment, time.Now().Add(time.Hour))
		c.advance(stopLimiterRequeue + time.Second)
		if !isSuspended(c, "train") {
			t.Error("it still runs although the limiter was released")
		}
	})
}

// Sixty pods that request a minute each hold no stop, also while the limiter is engaged for a
// mistaken limit.
func TestChosenMaxRuntimeNeverEngagesStopLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var jobs []client.Object
		for i := range 60 {
			jobs = append(jobs, newJob(fmt.Sprint("minute-", i)))
		}
		c := newFakeCluster(t, jobs...)
		waitForWholeSecond()
		for i := range 60 {
			c.startPod(fmt.Sprint("minute-", i), "-1")
			c.pods[types.UID(fmt.Sprintf("minute-%d-1", i))].MaxRuntime = period.MustParseDuration("1m")
		}
		c.advance(2 * time.Hour) // the shortest lead is longer than the limit
		for i := range 60 {
			if !isSuspended(c, fmt.Sprint("minute-", i)) {
				t.Fatalf("workload %d still runs; the limiter has %v", i, c.stopLimiterConfigMap().Data)
			}
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
	c.createRunningClocks(10, 0, now, newShortenedLimit())
	c.reconciler.StopLimiter.MaxCount, c.reconciler.StopLimiter.MaxShare = 5, 0.3
	allowed := 0
	for ; allowed < 20; allowed++ {
		permitted, err := c.reconciler.StopLimiter.Allow(t.Context(), testDepartment, now)
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
