// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// waitForWholeSecond waits for the next whole second, the resolution of recorded times.
func waitForWholeSecond() time.Time {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
	return time.Now()
}

var twoDayNotices = []string{"WorkloadEnding 24h0m0s", "WorkloadEnding 44h0m0s", "WorkloadEnding 47h30m0s", "WorkloadStopped 48h0m0s"}

func TestJobIsStoppedAtRuntimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		start := waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(48*time.Hour - time.Second)
		if ptr.Deref(c.getJob("train").Spec.Suspend, false) {
			t.Fatal("it was stopped too early")
		}
		c.advance(time.Minute)
		j := c.getJob("train")
		if !ptr.Deref(j.Spec.Suspend, false) {
			t.Error("it still runs")
		}
		if got, want := j.Annotations[v1alpha1.AnnotationStoppedUntil], start.Add(49*time.Hour).UTC().Format(time.RFC3339); got != want {
			t.Errorf("stopped until %s, want %s", got, want)
		}
		if diff := cmp.Diff(twoDayNotices, c.noticeTexts(start)); diff != "" {
			t.Errorf("notices (-want +got):\n%s", diff)
		}
		if s := c.listClocks()[0].Status; s.State != v1alpha1.ClockStateStopped || s.Stopped.Times != 1 {
			t.Errorf("the clock has %s, %+v", s.State, s.Stopped)
		}
	})
}

func TestReconcileIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		c.startPod("train", "-1")
		c.advance(time.Minute)
		before := c.calls
		c.advance(20 * time.Hour)
		if c.calls != before {
			t.Errorf("%d writes", c.calls-before)
		}
	})
}

func TestPodReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		start := waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(10 * time.Hour)
		c.startPod("train", "-2") // replaces the first before that ends
		delete(c.pods, "train-1")
		c.advance(10 * time.Hour)
		delete(c.pods, "train-2")
		c.advance(30 * time.Minute)
		c.restart()
		c.startPod("train", "-3")
		c.advance(30 * time.Hour)
		want := []string{"WorkloadEnding 24h30m0s", "WorkloadEnding 44h30m0s", "WorkloadEnding 48h0m0s", "WorkloadStopped 48h30m0s"}
		if diff := cmp.Diff(want, c.noticeTexts(start)); diff != "" {
			t.Errorf("notices (-want +got):\n%s", diff)
		}
	})
}

func TestRenamedWorkloadInheritsRunningTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, copied := newJob("train"), newJob("again")
		copied.Spec.Template = first.Spec.Template
		c := newFakeCluster(t, first, copied, newJob("other"))
		start := waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(48*time.Hour + time.Minute)
		c.startPod("again", "-1")
		c.startPod("other", "-1")
		c.advance(10 * time.Minute)
		if !ptr.Deref(c.getJob("again").Spec.Suspend, false) {
			t.Error("the copy runs")
		}
		if ptr.Deref(c.getJob("other").Spec.Suspend, false) {
			t.Error("another workload was stopped")
		}
		_ = start
	})
}

// After a crash at any call the stop is completed, nothing ends without announcement, and
// nothing is announced twice.
func TestReconcileAfterCrashAtAnyWrite(t *testing.T) {
	calls := 0
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(49*time.Hour - time.Second)
		calls = c.calls
	})
	if calls < 10 {
		t.Fatalf("only %d writes; was the workload stopped at all?", calls)
	}
	for at := 1; at <= calls; at++ {
		for _, written := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, written %v", at, written), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newFakeCluster(t, newJob("train"))
					c.crashAt, c.crashAfterWrite = at, written
					start := waitForWholeSecond()
					c.startPod("train", "-1")
					c.advance(49*time.Hour - time.Second)
					if !ptr.Deref(c.getJob("train").Spec.Suspend, false) {
						t.Error("it still runs")
					}
					notices := c.noticeTexts(start)
					// A Notice that the crash prevented comes a second later.
					if last := len(notices) - 1; notices[last] == "WorkloadStopped 48h0m1s" {
						notices[last] = "WorkloadStopped 48h0m0s"
					}
					if diff := cmp.Diff(twoDayNotices, notices); diff != "" {
						t.Errorf("notices (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// A lost or early timer delays no stop: each successful call returns the next wake-up.
func TestReconcileAlwaysRequeues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.afterReconcile = func() {
			for _, request := range c.reconcileRequests(t.Context()) {
				result, err := c.reconciler.Reconcile(t.Context(), request)
				if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > maxRequeueInterval {
					t.Errorf("at %v it requeues after %v, %v", time.Now(), result.RequeueAfter, err)
				}
			}
		}
		c.advance(50 * time.Hour) // beyond its end
	})
}

func TestTimeZoneChangeKeepsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("train"))
		waitForWholeSecond()
		c.startPod("train", "-1")
		c.advance(30 * time.Hour)
		before := c.listClocks()[0].Status
		var department v1alpha1.Department
		if err := c.rawClient.Get(t.Context(), client.ObjectKey{Name: "students"}, &department); err != nil {
			t.Fatal(err)
		}
		department.Spec.Notices.TimeZone = "America/New_York"
		if err := c.rawClient.Update(t.Context(), &department); err != nil {
			t.Fatal(err)
		}
		c.advance(time.Minute)
		after := c.listClocks()[0].Status
		if after.Local.Ends == before.Local.Ends {
			t.Errorf("the displayed end is still %s", after.Local.Ends)
		}
		after.Local, after.GPUUsage = before.Local, before.GPUUsage // each write counts the GPU time
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("more than the displayed times changed (-before +after):\n%s", diff)
		}
	})
}
