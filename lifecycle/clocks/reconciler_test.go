// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

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

// wholeSecond waits for one, since that is how instants are recorded.
func wholeSecond() time.Time {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
	return time.Now()
}

var toldOfTwoDays = []string{"WorkloadEnding 24h0m0s", "WorkloadEnding 44h0m0s", "WorkloadEnding 47h30m0s", "WorkloadStopped 48h0m0s"}

func TestAJobEndsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, job("train"))
		start := wholeSecond()
		c.run("train", "-1")
		c.live(48*time.Hour - time.Second)
		if ptr.Deref(c.job("train").Spec.Suspend, false) {
			t.Fatal("it was stopped before its time")
		}
		c.live(time.Minute)
		j := c.job("train")
		if !ptr.Deref(j.Spec.Suspend, false) {
			t.Error("it runs on")
		}
		if got, want := j.Annotations[v1alpha1.AnnotationStoppedUntil], start.Add(49*time.Hour).UTC().Format(time.RFC3339); got != want {
			t.Errorf("stopped until %s, want %s", got, want)
		}
		if diff := cmp.Diff(toldOfTwoDays, c.told(start)); diff != "" {
			t.Errorf("notices (-want +got):\n%s", diff)
		}
		if s := c.clocks()[0].Status; s.State != v1alpha1.ClockStateStopped || s.Stopped.Times != 1 {
			t.Errorf("the clock says %s, %+v", s.State, s.Stopped)
		}
	})
}

func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, job("train"))
		c.run("train", "-1")
		c.live(time.Minute)
		before := c.calls
		c.live(20 * time.Hour)
		if c.calls != before {
			t.Errorf("%d writes", c.calls-before)
		}
	})
}

func TestPodsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, job("train"))
		start := wholeSecond()
		c.run("train", "-1")
		c.live(10 * time.Hour)
		c.run("train", "-2") // its place is taken before it goes
		delete(c.pods, "train-1")
		c.live(10 * time.Hour)
		delete(c.pods, "train-2")
		c.live(30 * time.Minute)
		c.restart()
		c.run("train", "-3")
		c.live(30 * time.Hour)
		want := []string{"WorkloadEnding 24h30m0s", "WorkloadEnding 44h30m0s", "WorkloadEnding 48h0m0s", "WorkloadStopped 48h30m0s"}
		if diff := cmp.Diff(want, c.told(start)); diff != "" {
			t.Errorf("notices (-want +got):\n%s", diff)
		}
	})
}

func TestACopyUnderAnotherNameHasTheTimeOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, copied := job("train"), job("again")
		copied.Spec.Template = first.Spec.Template
		c := newCluster(t, first, copied, job("other"))
		start := wholeSecond()
		c.run("train", "-1")
		c.live(48*time.Hour + time.Minute)
		c.run("again", "-1")
		c.run("other", "-1")
		c.live(10 * time.Minute)
		if !ptr.Deref(c.job("again").Spec.Suspend, false) {
			t.Error("the copy runs")
		}
		if ptr.Deref(c.job("other").Spec.Suspend, false) {
			t.Error("another workload was stopped")
		}
		_ = start
	})
}

// It guards that what was begun is completed after a crash at any call, that no
// end comes unannounced, and that nothing is said twice.
func TestACrashAtAnyCall(t *testing.T) {
	calls := 0
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, job("train"))
		wholeSecond()
		c.run("train", "-1")
		c.live(49*time.Hour - time.Second)
		calls = c.calls
	})
	if calls < 10 {
		t.Fatalf("only %d calls write; is the workload stopped at all?", calls)
	}
	for at := 1; at <= calls; at++ {
		for _, written := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, written %v", at, written), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, job("train"))
					c.crashAt, c.written = at, written
					start := wholeSecond()
					c.run("train", "-1")
					c.live(49*time.Hour - time.Second)
					if !ptr.Deref(c.job("train").Spec.Suspend, false) {
						t.Error("it runs on")
					}
					told := c.told(start)
					// What was not said before the crash is said a second later.
					if last := len(told) - 1; told[last] == "WorkloadStopped 48h0m1s" {
						told[last] = "WorkloadStopped 48h0m0s"
					}
					if diff := cmp.Diff(toldOfTwoDays, told); diff != "" {
						t.Errorf("notices (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// It guards that a timer which was lost, or fired early, ends nothing late: each
// look that succeeds names the next.
func TestEachLookNamesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, job("train"))
		wholeSecond()
		c.run("train", "-1")
		c.each = func() {
			for _, request := range c.look(t.Context()) {
				result, err := c.r.Reconcile(t.Context(), request)
				if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > longestSleep {
					t.Errorf("at %v it wants to look again in %v, %v", time.Now(), result.RequeueAfter, err)
				}
			}
		}
		c.live(50 * time.Hour) // over its end
	})
}

func TestAnotherTimeZoneMovesNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, job("train"))
		wholeSecond()
		c.run("train", "-1")
		c.live(30 * time.Hour)
		before := c.clocks()[0].Status
		var department v1alpha1.Department
		if err := c.raw.Get(t.Context(), client.ObjectKey{Name: "students"}, &department); err != nil {
			t.Fatal(err)
		}
		department.Spec.Notices.TimeZone = "America/New_York"
		if err := c.raw.Update(t.Context(), &department); err != nil {
			t.Fatal(err)
		}
		c.live(time.Minute)
		after := c.clocks()[0].Status
		if after.Local.Ends == before.Local.Ends {
			t.Errorf("people still read %s", after.Local.Ends)
		}
		after.Local = before.Local
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("more than what people read has changed (-before +after):\n%s", diff)
		}
	})
}
