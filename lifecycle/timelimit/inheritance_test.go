// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

const alice = "alice@example.org"

var inheritanceTime = time.Date(2026, 10, 5, 12, 0, 0, 0, time.UTC)

func before(span time.Duration) *metav1.Time {
	return ptr.To(metav1.NewTime(inheritanceTime.Add(-span)))
}

// newEndedClock returns the clock of Alice's Job work, which ran for ten hours until half an hour ago.
func newEndedClock(change ...func(*v1alpha1.WorkloadClock)) *v1alpha1.WorkloadClock {
	c := &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab"},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: "work"}},
		Status: v1alpha1.WorkloadClockStatus{
			TemplateHash: "same", CreatedBy: alice, AccumulatedSeconds: 36000,
			LastRunningSince: before(10*time.Hour + 30*time.Minute), PausedSince: before(30 * time.Minute),
		},
	}
	c.Name = c.Spec.Root.ClockName()
	for _, apply := range change {
		apply(c)
	}
	return c
}

// Protects invariant 12 and the time limit: which clocks of other workloads a workload continues.
func TestContinuesOther(t *testing.T) {
	other := v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: "copy"}.ClockName()
	same := newEndedClock().Name
	pausedFor := func(span time.Duration) *v1alpha1.WorkloadClockStatus {
		return &v1alpha1.WorkloadClockStatus{PausedSince: before(span), AccumulatedSeconds: 60}
	}
	runningFor := func(span time.Duration) *v1alpha1.WorkloadClockStatus {
		return &v1alpha1.WorkloadClockStatus{RunningSince: before(span)}
	}
	asFormer := func(c *v1alpha1.WorkloadClock) { c.Name = c.Spec.Root.FormerClockName(alice) }
	tests := map[string]struct {
		clock     *v1alpha1.WorkloadClock
		successor timelimit.Successor
		want      bool
	}{
		"a copy":                          {newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same"}, true},
		"another program":                 {newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "other"}, false},
		"an unknown program":              {newEndedClock(), timelimit.Successor{Clock: other, Creator: alice}, false},
		"another user's copy":             {newEndedClock(), timelimit.Successor{Clock: other, Creator: "bob", TemplateHash: "same"}, false},
		"its own clock":                   {newEndedClock(), timelimit.Successor{Clock: same, Creator: alice, TemplateHash: "same"}, false},
		"the former clock of its name":    {newEndedClock(asFormer), timelimit.Successor{Clock: same, Creator: alice, TemplateHash: "other"}, true},
		"another user's former clock":     {newEndedClock(asFormer), timelimit.Successor{Clock: same, Creator: "bob", TemplateHash: "same"}, false},
		"a copy that ran since its pause": {newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: pausedFor(11 * time.Hour)}, true},
		"a copy that ran at the same time": {
			newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: pausedFor(10 * time.Hour)}, false,
		},
		"a copy that ran at the same time for a moment, and continued its clock": {
			newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: &v1alpha1.WorkloadClockStatus{
				PausedSince: before(10 * time.Hour), Successor: same,
			}}, true,
		},
		"a copy, after its own reset": {
			newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: &v1alpha1.WorkloadClockStatus{}}, true,
		},
		"a copy that is paused soon after this workload started": {
			newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: runningFor(45 * time.Minute)}, true,
		},
		"a copy that ran beside this workload for longer than the reset time": {
			newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: runningFor(2 * time.Hour)}, false,
		},
		"a copy that ran beside this workload for hours, until its pod was replaced": {
			newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: &v1alpha1.WorkloadClockStatus{
				StartedAt: before(8 * time.Hour), LastRunningSince: before(8 * time.Hour), AccumulatedSeconds: 26000, RunningSince: before(45 * time.Minute),
			}}, false,
		},
		"a copy that ran beside this workload for hours, and again while it was paused": {
			newEndedClock(func(c *v1alpha1.WorkloadClock) { c.Status.LastRunningSince = before(50 * time.Minute) }),
			timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: &v1alpha1.WorkloadClockStatus{
				StartedAt: before(8 * time.Hour), LastRunningSince: before(8 * time.Hour), AccumulatedSeconds: 25800, PausedSince: before(50 * time.Minute),
			}},
			false,
		},
		"a copy with which it takes short turns": {
			newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: &v1alpha1.WorkloadClockStatus{
				StartedAt: before(11 * time.Hour), LastRunningSince: before(11 * time.Hour), AccumulatedSeconds: 32400, RunningSince: before(45 * time.Minute),
			}}, true,
		},
		"a copy that is paused soon after this workload started, although its pod was replaced": {
			newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: &v1alpha1.WorkloadClockStatus{
				StartedAt: before(50 * time.Minute), LastRunningSince: before(50 * time.Minute), AccumulatedSeconds: 240, RunningSince: before(45 * time.Minute),
			}}, true,
		},
		"a copy beside which this workload ran for a moment": {
			newEndedClock(), timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: &v1alpha1.WorkloadClockStatus{
				StartedAt: before(50 * time.Minute), LastRunningSince: before(50 * time.Minute), AccumulatedSeconds: 300, PausedSince: before(45 * time.Minute),
			}}, true,
		},
		"a copy that Sluice stopped beside this workload": {
			newEndedClock(func(c *v1alpha1.WorkloadClock) { c.Status.Stopped = &v1alpha1.ClockStop{At: *before(30 * time.Minute)} }),
			timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: runningFor(45 * time.Minute)},
			false,
		},
		"a copy that started after this workload": {
			newEndedClock(func(c *v1alpha1.WorkloadClock) { c.Status.LastRunningSince = before(40 * time.Minute) }),
			timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same", Own: runningFor(45 * time.Minute)},
			false,
		},
		"a copy that has a successor": {
			newEndedClock(func(c *v1alpha1.WorkloadClock) { c.Status.Successor = "third" }),
			timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same"},
			false,
		},
		"a copy that it continues already": {
			newEndedClock(func(c *v1alpha1.WorkloadClock) { c.Status.Successor = other }),
			timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same"},
			true,
		},
		"a copy that completed": {
			newEndedClock(func(c *v1alpha1.WorkloadClock) { c.Status.CompletedAt = c.Status.PausedSince }),
			timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same"},
			false,
		},
		"a copy that was reset": {
			newEndedClock(func(c *v1alpha1.WorkloadClock) { c.Status.PausedSince = before(time.Hour) }),
			timelimit.Successor{Clock: other, Creator: alice, TemplateHash: "same"},
			false,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.successor.ContinuesOther(tc.clock, time.Hour, inheritanceTime); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A workload that continues a clock beside which it ran keeps running, and that time counts once.
func TestContinueStatusCountsOverlapOnce(t *testing.T) {
	own := &v1alpha1.WorkloadClockStatus{RootUID: "uid", CreatedBy: alice, TemplateHash: "same", RunningSince: before(45 * time.Minute)}
	got := timelimit.ContinueStatus(own, newEndedClock(), inheritanceTime)
	if !got.RunningSince.Equal(own.RunningSince) || got.PausedSince != nil || got.AccumulatedSeconds != 36000-15*60 {
		t.Errorf("runs since %v, paused since %v, ran for %d s before", got.RunningSince, got.PausedSince, got.AccumulatedSeconds)
	}
}

// A workload that ran for a moment beside another, and then for longer, has the time of both.
func TestContinueStatusAddsTimeAfterPause(t *testing.T) {
	own := &v1alpha1.WorkloadClockStatus{
		StartedAt: before(45 * time.Minute), LastRunningSince: before(45 * time.Minute), AccumulatedSeconds: 20 * 60, PausedSince: before(25 * time.Minute),
	}
	got := timelimit.ContinueStatus(own, newEndedClock(), inheritanceTime)
	if got.AccumulatedSeconds != 36000+5*60 {
		t.Errorf("ran for %d s, want those of the other and five minutes", got.AccumulatedSeconds)
	}
}

// A workload that continues the clock of a copy keeps its own extensions, and the longer running time.
func TestContinueStatusKeepsExtensions(t *testing.T) {
	day := period.MustParseDuration("24h")
	from := newEndedClock(func(c *v1alpha1.WorkloadClock) {
		c.Status.Extensions = []v1alpha1.ClockExtension{{Name: "both", By: day}}
		c.Status.Limit = &v1alpha1.ClockLimit{Configured: period.MustParseDuration("48h"), InForce: period.MustParseDuration("72h")}
	})
	own := &v1alpha1.WorkloadClockStatus{
		RootUID: "uid", CreatedBy: alice, TemplateHash: "same", AccumulatedSeconds: 40000,
		Extensions: []v1alpha1.ClockExtension{{Name: "both", By: day}, {Name: "own", By: day}},
	}
	got := timelimit.ContinueStatus(own, from, inheritanceTime)
	if len(got.Extensions) != 2 || got.Limit.InForce.Length() != 96*time.Hour || got.AccumulatedSeconds != 40000 || got.RootUID != "uid" {
		t.Errorf("%d extensions, limit %s, ran for %d s, UID %s", len(got.Extensions), got.Limit.InForce, got.AccumulatedSeconds, got.RootUID)
	}
}
