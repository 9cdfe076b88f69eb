// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit_test

import (
	"testing"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

// suspend suspends the project of a workload with pods.
func (w *simulation) suspend() {
	w.observed.ProjectEnd, w.observed.HasPodsToEnd = v1alpha1.EndProjectSuspended, true
	w.decide()
}

// Protects invariant 11: a workload of a suspended project is stopped once, an extension and the reset
// time do not release it, and it stays stopped until the project is renewed.
func TestDecideProjectSuspension(t *testing.T) {
	w := newSimulation()
	w.startPods()
	w.advance(hour)
	w.suspend()
	stopped := w.status.Stopped
	if !w.lastDecision.Stop || stopped == nil || stopped.Reason != v1alpha1.EndProjectSuspended || len(w.stops) != 1 {
		t.Fatalf("stop %v, %+v, %d stops", w.lastDecision.Stop, stopped, len(w.stops))
	}
	w.advance(time.Minute)
	w.observed = timelimit.Observation{ProjectEnd: v1alpha1.EndProjectSuspended}
	w.limits.GrantedExtensions = []v1alpha1.ClockExtension{{Name: "more", By: period.MustParseDuration("24h")}}
	w.advance(20 * 24 * hour)
	if s := w.status; s.State != v1alpha1.ClockStateStopped || s.AccumulatedSeconds != 3660 || w.lastDecision.Released || len(w.stops) != 1 {
		t.Errorf("in the suspended project: %s after %d s, %d stops, released %v", s.State, s.AccumulatedSeconds, len(w.stops), w.lastDecision.Released)
	}
	w.observed.ProjectEnd = v1alpha1.EndProjectDeleted
	if w.decide(); w.status.Stopped == nil {
		t.Error("the deletion of a suspended project releases the stop")
	}
	w.observed.ProjectEnd = ""
	if w.decide(); !w.lastDecision.Released || w.status.Stopped != nil || w.lastDecision.Stop {
		t.Errorf("after the renewal: %+v, released %v", w.status.Stopped, w.lastDecision.Released)
	}
	if w.decide(); w.lastDecision.Released {
		t.Error("the stop is released twice")
	}
}

// A renewal soon after the suspension keeps the running time; a stop at the limit is not released by it.
func TestRenewalKeepsTheClock(t *testing.T) {
	w := newSimulation()
	w.startPods()
	w.advance(10 * hour)
	w.suspend()
	w.observed = timelimit.Observation{ProjectEnd: v1alpha1.EndProjectSuspended}
	w.advance(time.Minute)
	w.observed.ProjectEnd = ""
	w.advance(time.Minute)
	if w.status.AccumulatedSeconds != 36_000 || w.status.State != v1alpha1.ClockStatePaused {
		t.Errorf("%s after %d s", w.status.State, w.status.AccumulatedSeconds)
	}
	w.startPods()
	w.advance(72 * hour)
	if s := w.status.Stopped; s == nil || s.Reason != v1alpha1.EndMaxRuntime {
		t.Fatalf("after the limit: %+v", s)
	}
	w.suspend()
	w.observed.ProjectEnd = ""
	if w.decide(); w.status.Stopped == nil {
		t.Error("a renewal releases a stop at the limit")
	}
}
