// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
)

// inTestEnv runs a test in a bubble of its own time.
func inTestEnv(t *testing.T, at string, do func(*testEnv)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		do(newTestEnv(t, at, newClock("train", "anna"), newClock("serve", "ben")))
	})
}

func TestEndedUseRecordedPromptly(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.advance(time.Minute)
		w.startPod("train-1", 1500, 3*time.Second)
		w.advance(87 * time.Second)
		w.stopPod("train-1")
		w.advance(0)
		record := w.getRecord("2026-10")
		want := v1alpha1.UsageRecord{
			Spec: v1alpha1.UsageRecordSpec{Project: testNamespace, ProjectUID: "first", Month: "2026-10"},
			Status: v1alpha1.UsageRecordStatus{
				Department: "students", GPUMilliHours: 90 * 1500 / 3600,
				Entries:   []v1alpha1.UsageEntry{{User: "anna", WorkloadType: "train", NodePool: "dgx", GPUMilliSeconds: 90 * 1500}},
				UpdatedAt: &metav1.Time{Time: parseTime("2026-10-05T12:02:27Z")},
			},
		}
		if diff := cmp.Diff(want.Spec, record.Spec); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want.Status, record.Status); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWriteIntervals(t *testing.T) {
	tests := map[string]struct {
		do   func(*testEnv)
		most int
	}{
		"nothing runs":     {func(w *testEnv) { w.advance(10 * 24 * time.Hour) }, 0},
		"a day of one pod": {func(w *testEnv) { w.startPod("train-1", 1000, 0); w.advance(24*time.Hour + time.Minute) }, 1 + 24},
		"a pod of a second": {func(w *testEnv) {
			w.startPod("train-1", 1000, 0)
			w.advance(time.Second)
			w.stopPod("train-1")
			w.advance(time.Hour)
		}, 1 + 1},
		"pods end in a row": {func(w *testEnv) {
			for i := range 60 {
				uid := fmt.Sprintf("train-%d", i)
				w.startPod(uid, 1000, 0)
				w.advance(time.Second)
				w.stopPod(uid)
				w.advance(0)
			}
			w.advance(time.Hour)
		}, 1 + 7},
		"fast time": {func(w *testEnv) {
			w.time.line, _ = w.time.line.WithScale(3600, time.Now())
			w.startPod("train-1", 1000, 0)
			w.advance(10 * time.Minute)
		}, 1 + 10},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
				tc.do(w)
				if w.writes > tc.most {
					t.Errorf("%d writes, want %d at most", w.writes, tc.most)
				}
			})
		})
	}
}

// After a start the workloads of a namespace become known one after another. One write records them all, and
// nothing is written afterwards for an hour.
func TestStartWritesOnce(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.unresolved = map[types.UID]bool{"train-1": true, "serve-1": true}
		w.startPod("train-1", 1000, 59*time.Minute)
		w.startPod("serve-1", 500, 59*time.Minute)
		w.advance(20 * time.Second)
		delete(w.unresolved, "train-1")
		w.advance(2 * time.Minute)
		delete(w.unresolved, "serve-1")
		w.advance(50 * time.Minute)
		if got := w.recordedByUser(); w.writes != 2 || got["anna"] == 0 || got["ben"] == 0 {
			t.Errorf("%d writes, want the creation and one update; recorded %v", w.writes, got)
		}
	})
}

// A workload that stays unknown does not keep the others out of the records.
func TestUnknownWorkloadDelaysNoOther(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.unresolved = map[types.UID]bool{"train-1": true}
		w.startPod("train-1", 1000, 59*time.Minute)
		w.startPod("serve-1", 500, 59*time.Minute)
		w.advance(startTimeout + time.Minute)
		if got := w.recordedByUser()["ben"]; got == 0 {
			t.Error("the known workload is not recorded")
		}
	})
}

// What runs is in the records at least hourly, but for the seconds in which pods
// may be reported late.
func TestRunningUseRecordedHourly(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.startPod("train-1", 1000, 0)
		w.startPod("serve-1", 500, 0)
		for hours := range 30 {
			w.advance(time.Hour)
			w.advance(15 * time.Second)
			least := int64((hours + 1) * 3600)
			if got := w.recordedByUser(); got["anna"] < 1000*least || got["ben"] != got["anna"]/2 {
				t.Fatalf("after %d hours: %v", hours+1, got)
			}
		}
		want := []v1alpha1.UsageCursor{{Clock: "serve"}, {Clock: "train"}}
		got := w.getRecord("2026-10").Status.Accounted
		for i := range got {
			got[i].Until = metav1.Time{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPolicyTimeStep(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.startPod("train-1", 1000, 0)
		w.advance(time.Minute)
		var err error
		if w.time.line, err = w.time.line.WithStep(30*24*time.Hour, time.Now()); err != nil {
			t.Fatal(err)
		}
		w.advance(2 * time.Minute)
		if got, least := w.recordedByUser()["anna"], int64(30*24*3600*1000); got < least {
			t.Errorf("%d are recorded, want %d at least: the step", got, least)
		}
		w.stopPod("train-1")
		w.advance(time.Minute)
		if diff := cmp.Diff(w.used, w.recordedByUser()); diff != "" {
			t.Error(diff)
		}
		// 2026-10-31T23:00:00Z is midnight in Berlin.
		if got, want := w.recordedSeconds("2026-10"), int64(parseTime("2026-10-31T23:00:00Z").Sub(parseTime("2026-10-05T12:00:00Z"))/time.Second); got != want {
			t.Errorf("october has %d s, want %d", got, want)
		}
	})
}

// The start of a pod is in whole seconds, and policy time may be stepped within that second.
func TestPolicyTimeStepInStartSecond(t *testing.T) {
	step := func(w *testEnv) { w.time.line, _ = w.time.line.WithStep(30*24*time.Hour, time.Now()) }
	wait := func(*testEnv) { time.Sleep(200 * time.Millisecond) }
	start := func(w *testEnv) { w.startPod("train-1", 1000, 0) }
	tests := map[string]struct {
		order []func(*testEnv)
		want  int64 // whole days
	}{
		"begins after the step":  {[]func(*testEnv){wait, step, wait, start}, 0},
		"begins before the step": {[]func(*testEnv){wait, start, wait, step}, 30},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
				for _, do := range tc.order {
					do(w)
				}
				w.advance(2 * time.Minute)
				w.stopPod("train-1")
				w.advance(time.Minute)
				if got := w.recordedByUser()["anna"] / 1000 / (24 * 3600); got != tc.want {
					t.Errorf("%d days are recorded", got)
				}
			})
		})
	}
}

func TestMonthEndsInDepartmentTimeZone(t *testing.T) {
	inTestEnv(t, "2026-10-31T22:00:00Z", func(w *testEnv) {
		w.startPod("train-1", 1000, 0)
		w.advance(3 * time.Hour)
		w.stopPod("train-1")
		w.advance(time.Minute)
		if got := [2]int64{w.recordedSeconds("2026-10"), w.recordedSeconds("2026-11")}; got != [2]int64{3600, 2 * 3600} {
			t.Errorf("seconds = %v", got)
		}
		for _, record := range w.listRecords() {
			if len(record.Status.Accounted) > 0 {
				t.Errorf("%s has cursors of what does not run: %v", record.Name, record.Status.Accounted)
			}
		}
	})
}

// While a workload runs over the end of a month, only the newer record has cursors.
func TestCursorsMoveToTheNextMonth(t *testing.T) {
	inTestEnv(t, "2026-10-31T22:00:00Z", func(w *testEnv) {
		w.startPod("train-1", 1000, 0)
		w.advance(3*time.Hour + time.Minute)
		if o, n := w.getRecord("2026-10").Status.Accounted, w.getRecord("2026-11").Status.Accounted; len(o) != 0 || len(n) != 1 {
			t.Errorf("october has %v, november %v", o, n)
		}
		w.restart()
		w.advance(time.Hour)
		w.stopPod("train-1")
		w.advance(time.Minute)
		if diff := cmp.Diff(w.used, w.recordedByUser()); diff != "" {
			t.Error(diff)
		}
	})
}

// The zone changes an hour after the month ended in the old one, where it has not
// yet in the new one.
func TestTimeZoneChangeCountsOnce(t *testing.T) {
	inTestEnv(t, "2026-10-31T20:30:00Z", func(w *testEnv) {
		w.startPod("train-1", 1000, 0)
		w.advance(3*time.Hour + 45*time.Minute)
		moved := newProject("students")
		if err := w.client.Get(context.Background(), client.ObjectKeyFromObject(moved), moved); err != nil {
			t.Fatal(err)
		}
		moved.Spec.Department = "overseas"
		for _, err := range []error{
			w.client.Create(context.Background(), newDepartment("overseas", "America/New_York")),
			w.client.Update(context.Background(), moved),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		w.advance(2 * time.Hour)
		w.restart()
		w.advance(5 * time.Hour)
		w.stopPod("train-1")
		w.advance(time.Minute)
		if diff := cmp.Diff(w.used, w.recordedByUser()); diff != "" {
			t.Error(diff)
		}
		for _, record := range w.listRecords() {
			if record.Status.Department != "overseas" {
				t.Errorf("%s is of %s, want the department of the last entry", record.Name, record.Status.Department)
			}
		}
	})
}

func TestControllerDownForAWeek(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.startPod("train-1", 1000, 0)
		w.advance(2 * time.Hour)
		w.killProcess()
		time.Sleep(7 * 24 * time.Hour)
		w.startPod("serve-1", 500, 36*time.Hour) // began meanwhile
		w.restart()
		w.advance(5 * time.Minute)
		w.stopPod("train-1")
		w.stopPod("serve-1")
		w.advance(time.Minute)
		if diff := cmp.Diff(w.used, w.recordedByUser()); diff != "" {
			t.Error(diff)
		}
	})
}

// Pods of a workload that runs are reported seconds after they began.
func TestLatePodReports(t *testing.T) {
	for name, restarts := range map[string]bool{"": false, "with a restart": true} {
		t.Run(name, func(t *testing.T) {
			inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
				w.startPod("train-1", 1000, 0)
				w.startPod("train-x", 10, 0)
				w.advance(time.Hour)
				w.stopPod("train-x") // has the workload written
				w.advance(5 * time.Second)
				w.startPod("train-2", 1000, 6*time.Second)
				if restarts {
					w.restart()
				}
				w.advance(time.Hour)
				w.stopPod("train-1")
				w.stopPod("train-2")
				w.advance(time.Minute)
				if diff := cmp.Diff(w.used, w.recordedByUser()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Every write, one after another, fails: done or not, and with or without the end
// of the process.
func TestFailedWritesCountOnce(t *testing.T) {
	for failAt := 1; ; failAt++ {
		reached := false
		for _, done := range []bool{false, true} {
			for _, crash := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d done=%t crash=%t", failAt, done, crash), func(t *testing.T) {
					inTestEnv(t, "2026-10-31T21:00:00Z", func(w *testEnv) {
						w.failAt, w.done, w.crash = failAt, done, crash
						w.startPod("train-1", 1000, 0)
						w.startPod("serve-1", 250, 0)
						w.advance(90 * time.Minute)
						if !crash { // of what ends just then a new process cannot know
							w.stopPod("serve-1")
						}
						w.advance(2 * time.Hour)
						w.startPod("train-2", 700, time.Second)
						w.advance(90 * time.Minute)
						reached = reached || w.writes >= failAt
						w.failAt = 0
						for uid := range w.pods {
							w.stopPod(string(uid))
						}
						w.advance(time.Minute)
						if diff := cmp.Diff(w.used, w.recordedByUser()); diff != "" {
							t.Error(diff)
						}
					})
				})
			}
		}
		if !reached {
			if failAt < 8 {
				t.Errorf("there were %d writes only", failAt-1)
			}
			return
		}
	}
}

func TestProjectRecreated(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.startPod("train-1", 1000, 0)
		w.advance(30 * time.Minute)
		gone := newProject("students")
		if err := w.client.Delete(context.Background(), gone); err != nil {
			t.Fatal(err)
		}
		w.advance(0)
		if got := w.recordedByUser()["anna"]; got != 1800*1000 {
			t.Errorf("when the project went, %d were recorded", got)
		}
		w.advance(time.Hour) // no project
		again := newProject("students")
		again.UID, again.CreationTimestamp = "second", metav1.NewTime(time.Now())
		if err := w.client.Create(context.Background(), again); err != nil {
			t.Fatal(err)
		}
		w.advance(10 * time.Minute)
		w.stopPod("train-1")
		w.advance(time.Minute)
		if got := w.recordedByUser()["anna"]; got != (1800+600)*1000 {
			t.Errorf("%d are recorded", got)
		}
		if uid := w.getRecord("2026-10").Spec.ProjectUID; uid != "first" {
			t.Errorf("the month's record is of %s", uid)
		}
	})
}

func TestUnknownUserAndNodePool(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.startPod("stranger-1", 1000, 0)
		bare := &podcache.Pod{
			Namespace: testNamespace, Name: "bare", UID: "bare", Node: "dgx-1", BoundAt: time.Now(), Milli: 1000,
			WorkloadType: "nonsense", CreatedBy: "carl", Pool: "a-name-that-is-longer-than-that-of-any-node-pool-could-be",
		}
		w.r.tracker.handleChange(podcache.Change{After: bare})
		w.advance(time.Hour + time.Minute)
		want := []v1alpha1.UsageEntry{
			{User: UnknownName, WorkloadType: "train", NodePool: "dgx"},
			{User: "carl", WorkloadType: "train", NodePool: UnknownName},
		}
		got := w.getRecord("2026-10").Status.Entries
		for i := range got {
			got[i].GPUMilliSeconds = 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A pod on a lost node counts until its grace period is over, or until the node was lost, also
// after a restart. It counts again when the node returns and the pod is still there. On a node that
// is ready it counts until its end.
func TestPodOnLostNodeCountsNoUsage(t *testing.T) {
	for name, tc := range map[string]struct {
		lose func(w *testEnv)
		want time.Duration
	}{
		"not ready": {func(w *testEnv) { w.setNodeReady(corev1.ConditionUnknown) }, 2*time.Hour + time.Minute},
		"gone": {func(w *testEnv) {
			if err := w.client.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}}); err != nil {
				w.t.Fatal(err)
			}
		}, 2*time.Hour + time.Minute},
		"lost later": {func(w *testEnv) {
			w.advance(20 * time.Minute)
			w.setNodeReady(corev1.ConditionUnknown)
		}, 2*time.Hour + 20*time.Minute},
		"ready again": {func(w *testEnv) {
			w.setNodeReady(corev1.ConditionUnknown)
			w.advance(time.Hour)
			w.setNodeReady(corev1.ConditionTrue)
		}, 5*time.Hour + time.Minute},
		"ready": {func(*testEnv) {}, 5 * time.Hour},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %v", name, restarted), func(t *testing.T) {
				inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
					w.setNodeReady(corev1.ConditionTrue)
					w.startPod("train-1", 1000, 0)
					w.advance(2 * time.Hour)
					w.deletePod("train-1", time.Minute)
					tc.lose(w)
					w.advance(90 * time.Minute)
					if restarted {
						w.restart()
					}
					w.advance(90 * time.Minute)
					w.stopPod("train-1")
					w.advance(time.Minute)
					got := time.Duration(w.recordedByUser()["anna"]) * time.Millisecond
					if got < tc.want || got > tc.want+maxRequeueAfter {
						t.Errorf("%s are recorded, want %s", got, tc.want)
					}
				})
			})
		}
	}
}

// A pod counts from its binding, although its containers start later, in any order of events
// and restarts.
func TestUsageCountsWhatIsHeld(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		pending := &podcache.Pod{Namespace: testNamespace, Name: "train-2", UID: "train-2", CreatedAt: time.Now(), Milli: 1000, Pool: "dgx"}
		w.r.tracker.handleChange(podcache.Change{After: pending})
		w.startPod("train-1", 1000, 0)
		w.advance(20 * time.Minute)
		before := w.pods["train-1"]
		after := *before
		after.Running, after.StartedAt = true, time.Now()
		w.pods["train-1"] = &after
		w.r.tracker.handleChange(podcache.Change{Before: before, After: &after})
		w.advance(10 * time.Minute)
		w.restart()
		w.advance(10 * time.Minute)
		w.stopPod("train-1")
		w.advance(time.Minute)
		if got, want := w.recordedByUser()["anna"], int64(40*60*1000); got != want {
			t.Errorf("%d are recorded, want %d", got, want)
		}
	})
}

// A pod whose charge changes while it runs is accounted for as it was until then.
func TestChargeChangeWhileRunning(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.startPod("train-1", 1000, 0)
		w.advance(20 * time.Minute)
		before := w.pods["train-1"]
		after := *before
		after.Milli = 2000
		w.pods["train-1"] = &after
		w.r.tracker.handleChange(podcache.Change{Before: before, After: &after})
		w.advance(10 * time.Minute)
		w.stopPod("train-1")
		w.advance(time.Minute)
		if got := w.recordedByUser()["anna"]; got != (1200+2*600)*1000 {
			t.Errorf("%d are recorded", got)
		}
	})
}

// A pod that is charged again after an interruption is not counted again from its start.
func TestInterruptedPodCountedOnce(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.startPod("train-1", 1000, 0)
		w.advance(20 * time.Minute)
		before := w.pods["train-1"]
		after := *before
		after.Milli = 0
		w.r.tracker.handleChange(podcache.Change{Before: before, After: &after})
		w.advance(10 * time.Minute)
		w.r.tracker.handleChange(podcache.Change{Before: &after, After: before})
		w.advance(10 * time.Minute)
		w.r.tracker.handleChange(podcache.Change{Before: before})
		w.advance(time.Minute)
		if got := w.recordedByUser()["anna"]; got != (1200+600)*1000 {
			t.Errorf("%d are recorded", got)
		}
	})
}

func TestFlushOnShutdown(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		w.startPod("train-1", 1000, 0)
		w.startPod("train-2", 1000, 0)
		w.advance(30 * time.Second)
		w.stopPod("train-1")
		w.advance(time.Second)
		w.stopPod("train-2") // seconds after the last write
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := w.r.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w.used, w.recordedByUser()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRetentionDeletesOldRecords(t *testing.T) {
	old := func(month string) client.Object {
		return &v1alpha1.UsageRecord{
			ObjectMeta: metav1.ObjectMeta{Name: testNamespace + "-" + month, UID: types.UID(month)},
			Spec:       v1alpha1.UsageRecordSpec{Project: testNamespace, Month: month},
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t, "2026-10-05T12:00:00Z", old("2023-08"), old("2023-09"), old("2023-10"), old("2026-09"))
		if err := w.r.deleteExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, record := range w.listRecords() {
			names = append(names, record.Name)
		}
		if diff := cmp.Diff([]string{"lab-2023-10", "lab-2026-09"}, names); diff != "" {
			t.Error(diff)
		}
	})
}

// The counter of usage has a series with 0 from the start of the first pod, so that a query of its increase counts all usage,
// and none once the namespace was idle for long.
func TestUsageCounter(t *testing.T) {
	inTestEnv(t, "2026-10-05T12:00:00Z", func(w *testEnv) {
		gpuSecondsTotal.Reset()
		w.startPod("train-1", 1500, 0)
		w.advance(time.Second)
		if got := testutil.CollectAndCount(gpuSecondsTotal); got != 3 {
			t.Errorf("%d series while the first pod runs, want 3 with 0", got)
		}
		w.advance(89 * time.Second)
		w.stopPod("train-1")
		w.advance(0)
		unmeasured := gpuSecondsTotal.WithLabelValues("students", testNamespace, "train", useUnmeasured)
		if got := testutil.ToFloat64(unmeasured); got != 135 {
			t.Errorf("%v GPU seconds, want 135", got)
		}
		w.advance(2 * maxRequeueAfter)
		w.advance(2 * maxRequeueAfter)
		if got := testutil.CollectAndCount(gpuSecondsTotal); got != 0 {
			t.Errorf("%d series of an idle namespace", got)
		}
	})
}
