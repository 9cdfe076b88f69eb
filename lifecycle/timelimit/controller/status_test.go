// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

func loadBerlin(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// Limits and leads are exact durations, also across the start and end of summer time.
// Displayed times are in the department's zone at that time.
func TestLimitsAreExactAcrossDaylightSaving(t *testing.T) {
	zone := loadBerlin(t)
	tests := map[string]struct {
		began                time.Time
		limit                string
		since, warned, until string
	}{
		"across the end of summer time": {
			began: time.Date(2026, 10, 24, 12, 0, 0, 0, zone), limit: "48h",
			since: "2026-10-24 12:00 CEST", warned: "2026-10-25 11:00 CET", until: "2026-10-26 11:00 CET",
		},
		"across its start": {
			began: time.Date(2026, 3, 28, 12, 0, 0, 0, zone), limit: "48h",
			since: "2026-03-28 12:00 CET", warned: "2026-03-29 13:00 CEST", until: "2026-03-30 13:00 CEST",
		},
		"in days, which are 24 hours each": {
			began: time.Date(2026, 10, 20, 12, 0, 0, 0, zone), limit: "10d",
			since: "2026-10-20 12:00 CEST", warned: "2026-10-29 11:00 CET", until: "2026-10-30 11:00 CET",
		},
		"into the first of the repeated hours": {
			began: time.Date(2026, 10, 23, 2, 30, 0, 0, zone), limit: "48h",
			since: "2026-10-23 02:30 CEST", warned: "2026-10-24 02:30 CEST", until: "2026-10-25 02:30 CEST",
		},
		"into the second of the repeated hours": {
			began: time.Date(2026, 10, 23, 3, 30, 0, 0, zone), limit: "48h",
			since: "2026-10-23 03:30 CEST", warned: "2026-10-24 03:30 CEST", until: "2026-10-25 02:30 CET",
		},
		"beyond the skipped hour": {
			began: time.Date(2026, 3, 27, 2, 30, 0, 0, zone), limit: "48h",
			since: "2026-03-27 02:30 CET", warned: "2026-03-28 02:30 CET", until: "2026-03-29 03:30 CEST",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			limit := period.MustParseDuration(tc.limit)
			limits := timelimit.EffectiveLimits{Limits: v1alpha1.Limits{MaxRuntime: limit}, Leads: defaultLeads}
			observed := timelimit.Observation{Running: true, RunningSince: tc.began}
			decide := func(at time.Time, previous v1alpha1.WorkloadClockStatus) timelimit.Decision {
				d := timelimit.Decide(at, previous, observed, limits)
				d.Status.Local = renderLocalStatus(&d.Status, zone)
				return d
			}
			started := decide(tc.began, v1alpha1.WorkloadClockStatus{})
			if diff := cmp.Diff(&v1alpha1.ClockLocal{Accumulated: "0s", RunningSince: tc.since, Ends: tc.until}, started.Status.Local); diff != "" {
				t.Errorf("displayed times (-want +got):\n%s", diff)
			}
			if got := started.NextDecision.In(zone).Format(localTimeFormat); got != tc.warned {
				t.Errorf("first warned at %s, want %s", got, tc.warned)
			}
			d := started
			for !d.Stopped {
				if d.NextDecision.IsZero() {
					t.Fatal("it never ends")
				}
				d = decide(d.NextDecision, d.Status)
			}
			if got := d.Status.Stopped.At.Sub(tc.began); got != limit.Length() {
				t.Errorf("it ran %s, want %s", got, limit)
			}
		})
	}
}

func TestRenderLocalStatus(t *testing.T) {
	at := func(hour int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC)}
	}
	limit := &v1alpha1.ClockLimit{InForce: period.MustParseDuration("48h")}
	tests := map[string]struct {
		status v1alpha1.WorkloadClockStatus
		want   v1alpha1.ClockLocal
	}{
		"no limit": {
			v1alpha1.WorkloadClockStatus{AccumulatedSeconds: 5400, RunningSince: at(8)},
			v1alpha1.ClockLocal{Accumulated: "1h30m", RunningSince: "2026-11-21 09:00 CET", Ends: "never"},
		},
		"paused": {
			v1alpha1.WorkloadClockStatus{AccumulatedSeconds: 3600, PausedSince: at(8), Limit: limit},
			v1alpha1.ClockLocal{Accumulated: "1h", Ends: "after running for 48h"},
		},
		"stopped, and its pods still terminate": {
			v1alpha1.WorkloadClockStatus{AccumulatedSeconds: 3600, RunningSince: at(8), Limit: limit, Stopped: &v1alpha1.ClockStop{At: *at(12), Until: at(13)}},
			v1alpha1.ClockLocal{Accumulated: "5h", Ends: "stopped until 2026-11-21 14:00 CET"},
		},
		"stopped without end": {
			v1alpha1.WorkloadClockStatus{AccumulatedSeconds: 3600, PausedSince: at(8), Stopped: &v1alpha1.ClockStop{At: *at(12)}},
			v1alpha1.ClockLocal{Accumulated: "1h", Ends: "stopped"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(&tc.want, renderLocalStatus(&tc.status, loadBerlin(t))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Pods have the deadline annotation from its announcement on, also pods that start later and
// pods from before a restart. It is written once.
func TestRunningPodsAreAnnotatedWithDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(name string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name}}
		}
		c := newFakeCluster(t, newJob("train"), pod("train-1"), pod("train-2"), pod("train-3"))
		expectEnds := func(when, name, want string) {
			t.Helper()
			p := pod(name)
			if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				t.Fatal(err)
			}
			if got := p.Annotations[v1alpha1.AnnotationEndsAt]; got != want {
				t.Errorf("%s: the deadline of %s is %q, want %q", when, name, got, want)
			}
		}
		end := waitForWholeSecond().Add(48 * time.Hour).UTC().Format(time.RFC3339)
		c.startPod("train", "-1")
		c.advance(23 * time.Hour)
		expectEnds("before it was announced", "train-1", "")
		c.advance(2 * time.Hour)
		expectEnds("after it was announced", "train-1", end)
		c.startPod("train", "-2")
		c.advance(time.Minute)
		expectEnds("when it came", "train-2", end)
		calls := c.calls
		c.advance(time.Hour)
		if c.calls != calls {
			t.Errorf("%d writes while nothing changes", c.calls-calls)
		}
		c.restart()
		c.startPod("train", "-3")
		c.advance(time.Minute)
		expectEnds("when it came after a restart", "train-3", end)
		delete(c.pods, "train-1")
		delete(c.pods, "train-2")
		delete(c.pods, "train-3")
		c.advance(10 * time.Minute)
		if len(c.reconciler.annotatedPods.pods) > 0 {
			t.Errorf("annotated pods of a deleted clock: %v", c.reconciler.annotatedPods.pods)
		}
	})
}
