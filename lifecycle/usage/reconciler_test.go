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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/gpupods"
)

// within runs a test in a bubble of its own time.
func within(t *testing.T, at string, do func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		do(newWorld(t, at, made("train", "anna"), made("serve", "ben")))
	})
}

func TestWhatEndsIsRecordedAtOnce(t *testing.T) {
	within(t, "2026-10-05T12:00:00Z", func(w *world) {
		w.live(time.Minute)
		w.run("train-1", 1500, 3*time.Second)
		w.live(87 * time.Second)
		w.end("train-1")
		w.live(0)
		record := w.record("2026-10")
		want := v1alpha1.UsageRecord{
			Spec: v1alpha1.UsageRecordSpec{Project: lab, ProjectUID: "first", Month: "2026-10"},
			Status: v1alpha1.UsageRecordStatus{
				Department: "students", GPUMilliHours: 90 * 1500 / 3600,
				Entries:   []v1alpha1.UsageEntry{{User: "anna", WorkloadType: "train", NodePool: "dgx", GPUMilliSeconds: 90 * 1500}},
				UpdatedAt: &metav1.Time{Time: instant("2026-10-05T12:02:27Z")},
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

func TestWritesAreFew(t *testing.T) {
	tests := map[string]struct {
		do   func(*world)
		most int
	}{
		"nothing runs":      {func(w *world) { w.live(10 * 24 * time.Hour) }, 0},
		"a day of one pod":  {func(w *world) { w.run("train-1", 1000, 0); w.live(24*time.Hour + time.Minute) }, 1 + 24},
		"a pod of a second": {func(w *world) { w.run("train-1", 1000, 0); w.live(time.Second); w.end("train-1"); w.live(time.Hour) }, 1 + 1},
		"pods end in a row": {func(w *world) {
			for i := range 60 {
				uid := fmt.Sprintf("train-%d", i)
				w.run(uid, 1000, 0)
				w.live(time.Second)
				w.end(uid)
				w.live(0)
			}
			w.live(time.Hour)
		}, 1 + 7},
		"fast time": {func(w *world) {
			w.time.line, _ = w.time.line.WithScale(3600, time.Now())
			w.run("train-1", 1000, 0)
			w.live(10 * time.Minute)
		}, 1 + 10},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			within(t, "2026-10-05T12:00:00Z", func(w *world) {
				tc.do(w)
				if w.writes > tc.most {
					t.Errorf("%d writes, want %d at most", w.writes, tc.most)
				}
			})
		})
	}
}

// What runs is in the records at least hourly, but for the seconds in which pods
// may be reported late.
func TestWhatRunsIsRecordedHourly(t *testing.T) {
	within(t, "2026-10-05T12:00:00Z", func(w *world) {
		w.run("train-1", 1000, 0)
		w.run("serve-1", 500, 0)
		for hours := range 30 {
			w.live(time.Hour)
			w.live(15 * time.Second)
			least := int64((hours + 1) * 3600)
			if got := w.recorded(); got["anna"] < 1000*least || got["ben"] != got["anna"]/2 {
				t.Fatalf("after %d hours: %v", hours+1, got)
			}
		}
		want := []v1alpha1.UsageCursor{{Clock: "serve"}, {Clock: "train"}}
		got := w.record("2026-10").Status.Accounted
		for i := range got {
			got[i].Until = metav1.Time{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSteppedTimeIsUsed(t *testing.T) {
	within(t, "2026-10-05T12:00:00Z", func(w *world) {
		w.run("train-1", 1000, 0)
		w.live(time.Minute)
		var err error
		if w.time.line, err = w.time.line.Advanced(30*24*time.Hour, time.Now()); err != nil {
			t.Fatal(err)
		}
		w.live(2 * time.Minute)
		if got, least := w.recorded()["anna"], int64(30*24*3600*1000); got < least {
			t.Errorf("%d are recorded, want %d at least: the step", got, least)
		}
		w.end("train-1")
		w.live(time.Minute)
		if diff := cmp.Diff(w.used, w.recorded()); diff != "" {
			t.Error(diff)
		}
		// 2026-10-31T23:00:00Z is midnight in Berlin.
		if got, want := w.seconds("2026-10"), int64(instant("2026-10-31T23:00:00Z").Sub(instant("2026-10-05T12:00:00Z"))/time.Second); got != want {
			t.Errorf("october has %d s, want %d", got, want)
		}
	})
}

// A pod says when it began to the second, and policy time may be stepped within it.
func TestStepWithinTheSecondOfAStart(t *testing.T) {
	step := func(w *world) { w.time.line, _ = w.time.line.Advanced(30*24*time.Hour, time.Now()) }
	wait := func(*world) { time.Sleep(200 * time.Millisecond) }
	start := func(w *world) { w.run("train-1", 1000, 0) }
	tests := map[string]struct {
		order []func(*world)
		want  int64 // whole days
	}{
		"begins after the step":  {[]func(*world){wait, step, wait, start}, 0},
		"begins before the step": {[]func(*world){wait, start, wait, step}, 30},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			within(t, "2026-10-05T12:00:00Z", func(w *world) {
				for _, do := range tc.order {
					do(w)
				}
				w.live(2 * time.Minute)
				w.end("train-1")
				w.live(time.Minute)
				if got := w.recorded()["anna"] / 1000 / (24 * 3600); got != tc.want {
					t.Errorf("%d days are recorded", got)
				}
			})
		})
	}
}

func TestMonthsEndInTheDepartmentsZone(t *testing.T) {
	within(t, "2026-10-31T22:00:00Z", func(w *world) {
		w.run("train-1", 1000, 0)
		w.live(3 * time.Hour)
		w.end("train-1")
		w.live(time.Minute)
		if got := [2]int64{w.seconds("2026-10"), w.seconds("2026-11")}; got != [2]int64{3600, 2 * 3600} {
			t.Errorf("seconds = %v", got)
		}
		for _, record := range w.records() {
			if len(record.Status.Accounted) > 0 {
				t.Errorf("%s has cursors of what does not run: %v", record.Name, record.Status.Accounted)
			}
		}
	})
}

// While a workload runs over the end of a month, only the newer record has cursors.
func TestCursorsMoveToTheNextMonth(t *testing.T) {
	within(t, "2026-10-31T22:00:00Z", func(w *world) {
		w.run("train-1", 1000, 0)
		w.live(3*time.Hour + time.Minute)
		if o, n := w.record("2026-10").Status.Accounted, w.record("2026-11").Status.Accounted; len(o) != 0 || len(n) != 1 {
			t.Errorf("october has %v, november %v", o, n)
		}
		w.restart()
		w.live(time.Hour)
		w.end("train-1")
		w.live(time.Minute)
		if diff := cmp.Diff(w.used, w.recorded()); diff != "" {
			t.Error(diff)
		}
	})
}

// The zone changes an hour after the month ended in the old one, where it has not
// yet in the new one.
func TestChangedZoneCountsNothingTwice(t *testing.T) {
	within(t, "2026-10-31T20:30:00Z", func(w *world) {
		w.run("train-1", 1000, 0)
		w.live(3*time.Hour + 45*time.Minute)
		moved := project("students")
		if err := w.client.Get(context.Background(), client.ObjectKeyFromObject(moved), moved); err != nil {
			t.Fatal(err)
		}
		moved.Spec.Department = "overseas"
		for _, err := range []error{
			w.client.Create(context.Background(), department("overseas", "America/New_York")),
			w.client.Update(context.Background(), moved),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		w.live(2 * time.Hour)
		w.restart()
		w.live(5 * time.Hour)
		w.end("train-1")
		w.live(time.Minute)
		if diff := cmp.Diff(w.used, w.recorded()); diff != "" {
			t.Error(diff)
		}
		for _, record := range w.records() {
			if record.Status.Department != "overseas" {
				t.Errorf("%s is of %s, want the department of the last entry", record.Name, record.Status.Department)
			}
		}
	})
}

func TestAwayForAWeek(t *testing.T) {
	within(t, "2026-10-05T12:00:00Z", func(w *world) {
		w.run("train-1", 1000, 0)
		w.live(2 * time.Hour)
		w.die()
		time.Sleep(7 * 24 * time.Hour)
		w.run("serve-1", 500, 36*time.Hour) // began meanwhile
		w.restart()
		w.live(5 * time.Minute)
		w.end("train-1")
		w.end("serve-1")
		w.live(time.Minute)
		if diff := cmp.Diff(w.used, w.recorded()); diff != "" {
			t.Error(diff)
		}
	})
}

// Pods of a workload that runs are reported seconds after they began.
func TestLateReportsLoseNothing(t *testing.T) {
	for name, restarts := range map[string]bool{"": false, "with a restart": true} {
		t.Run(name, func(t *testing.T) {
			within(t, "2026-10-05T12:00:00Z", func(w *world) {
				w.run("train-1", 1000, 0)
				w.run("train-x", 10, 0)
				w.live(time.Hour)
				w.end("train-x") // has the workload written
				w.live(5 * time.Second)
				w.run("train-2", 1000, 6*time.Second)
				if restarts {
					w.restart()
				}
				w.live(time.Hour)
				w.end("train-1")
				w.end("train-2")
				w.live(time.Minute)
				if diff := cmp.Diff(w.used, w.recorded()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Every write, one after another, fails: done or not, and with or without the end
// of the process.
func TestNoFailedWriteLosesOrDoubles(t *testing.T) {
	for failAt := 1; ; failAt++ {
		reached := false
		for _, done := range []bool{false, true} {
			for _, crash := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d done=%t crash=%t", failAt, done, crash), func(t *testing.T) {
					within(t, "2026-10-31T21:00:00Z", func(w *world) {
						w.failAt, w.done, w.crash = failAt, done, crash
						w.run("train-1", 1000, 0)
						w.run("serve-1", 250, 0)
						w.live(90 * time.Minute)
						if !crash { // of what ends just then a new process cannot know
							w.end("serve-1")
						}
						w.live(2 * time.Hour)
						w.run("train-2", 700, time.Second)
						w.live(90 * time.Minute)
						reached = reached || w.writes >= failAt
						w.failAt = 0
						for uid := range w.pods {
							w.end(string(uid))
						}
						w.live(time.Minute)
						if diff := cmp.Diff(w.used, w.recorded()); diff != "" {
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

func TestProjectIsDeletedAndMadeAgain(t *testing.T) {
	within(t, "2026-10-05T12:00:00Z", func(w *world) {
		w.run("train-1", 1000, 0)
		w.live(30 * time.Minute)
		gone := project("students")
		if err := w.client.Delete(context.Background(), gone); err != nil {
			t.Fatal(err)
		}
		w.live(0)
		if got := w.recorded()["anna"]; got != 1800*1000 {
			t.Errorf("when the project went, %d were recorded", got)
		}
		w.live(time.Hour) // nobody's
		again := project("students")
		again.UID, again.CreationTimestamp = "second", metav1.NewTime(time.Now())
		if err := w.client.Create(context.Background(), again); err != nil {
			t.Fatal(err)
		}
		w.live(10 * time.Minute)
		w.end("train-1")
		w.live(time.Minute)
		if got := w.recorded()["anna"]; got != (1800+600)*1000 {
			t.Errorf("%d are recorded", got)
		}
		if uid := w.record("2026-10").Spec.ProjectUID; uid != "first" {
			t.Errorf("the month's record is of %s", uid)
		}
	})
}

func TestWhatIsNotKnownHasAName(t *testing.T) {
	within(t, "2026-10-05T12:00:00Z", func(w *world) {
		w.run("stranger-1", 1000, 0)
		bare := &gpupods.Pod{
			Namespace: lab, Name: "bare", UID: "bare", Running: true, StartedAt: time.Now(), Milli: 1000,
			WorkloadType: "nonsense", CreatedBy: "carl", Pool: "a-name-that-is-longer-than-that-of-any-node-pool-could-be",
		}
		w.r.meter.changed(gpupods.Change{After: bare})
		w.live(time.Hour + time.Minute)
		want := []v1alpha1.UsageEntry{
			{User: Unknown, WorkloadType: "train", NodePool: "dgx"},
			{User: "carl", WorkloadType: "train", NodePool: Unknown},
		}
		got := w.record("2026-10").Status.Entries
		for i := range got {
			got[i].GPUMilliSeconds = 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A pod whose charge changes while it runs is accounted for as it was until then.
func TestChangedChargeCountsFromThen(t *testing.T) {
	within(t, "2026-10-05T12:00:00Z", func(w *world) {
		w.run("train-1", 1000, 0)
		w.live(20 * time.Minute)
		before := w.pods["train-1"]
		after := *before
		after.Milli = 2000
		w.pods["train-1"] = &after
		w.r.meter.changed(gpupods.Change{Before: before, After: &after})
		w.live(10 * time.Minute)
		w.end("train-1")
		w.live(time.Minute)
		if got := w.recorded()["anna"]; got != (1200+2*600)*1000 {
			t.Errorf("%d are recorded", got)
		}
	})
}

// A pod that is not seen running for a while, and then again, is not counted from
// its beginning anew.
func TestInterruptedPodIsNotCountedTwice(t *testing.T) {
	within(t, "2026-10-05T12:00:00Z", func(w *world) {
		w.run("train-1", 1000, 0)
		w.live(20 * time.Minute)
		before := w.pods["train-1"]
		after := *before
		after.Running = false
		w.r.meter.changed(gpupods.Change{Before: before, After: &after})
		w.live(10 * time.Minute)
		w.r.meter.changed(gpupods.Change{Before: &after, After: before})
		w.live(10 * time.Minute)
		w.r.meter.changed(gpupods.Change{Before: before})
		w.live(time.Minute)
		if got := w.recorded()["anna"]; got != (1200+600)*1000 {
			t.Errorf("%d are recorded", got)
		}
	})
}

func TestWhatEndedIsWrittenWhenTheProcessEnds(t *testing.T) {
	within(t, "2026-10-05T12:00:00Z", func(w *world) {
		w.run("train-1", 1000, 0)
		w.run("train-2", 1000, 0)
		w.live(30 * time.Second)
		w.end("train-1")
		w.live(time.Second)
		w.end("train-2") // seconds after the last write
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := w.r.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w.used, w.recorded()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRecordsGoAfterThreeYears(t *testing.T) {
	old := func(month string) client.Object {
		return &v1alpha1.UsageRecord{
			ObjectMeta: metav1.ObjectMeta{Name: lab + "-" + month, UID: types.UID(month)},
			Spec:       v1alpha1.UsageRecordSpec{Project: lab, Month: month},
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2026-10-05T12:00:00Z", old("2023-08"), old("2023-09"), old("2023-10"), old("2026-09"))
		if err := w.r.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, record := range w.records() {
			names = append(names, record.Name)
		}
		if diff := cmp.Diff([]string{"lab-2023-10", "lab-2026-09"}, names); diff != "" {
			t.Error(diff)
		}
	})
}
