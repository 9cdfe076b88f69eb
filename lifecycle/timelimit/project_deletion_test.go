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

// Protects invariant 2 (a namespace that stays is not left with ungoverned GPU work): a workload
// with pods is stopped at once when its project is deleted, whatever its limits are, and until
// its pods are gone.
func TestDecideProjectDeletion(t *testing.T) {
	running := timelimit.Observation{Running: true, ProjectEnd: v1alpha1.EndProjectDeleted, HasPodsToEnd: true}
	tests := map[string]struct {
		observed timelimit.Observation
		change   func(w *simulation)
	}{
		"running":                      {observed: running},
		"without a limit":              {running, func(w *simulation) { w.limits.MaxRuntime = period.Duration{} }},
		"exempt":                       {running, func(w *simulation) { w.limits.Exempt = true }},
		"in a dry run":                 {running, func(w *simulation) { w.limits.DryRun = true }},
		"bound pods that do not start": {observed: timelimit.Observation{ProjectEnd: v1alpha1.EndProjectDeleted, HasPodsToEnd: true, StartingSince: newSimulation().now}},
		"pods that are not bound":      {observed: timelimit.Observation{ProjectEnd: v1alpha1.EndProjectDeleted, HasPodsToEnd: true}},
		"with a clock of active hours": {running, func(w *simulation) { w.limits.Clock = v1alpha1.ClockActive }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newSimulation()
			if tc.change != nil {
				tc.change(w)
			}
			w.observed = tc.observed
			w.observed.RunningSince = w.now
			w.decide()
			first := w.status.Stopped
			if !w.lastDecision.Stop || first == nil || first.Reason != v1alpha1.EndProjectDeleted || len(w.stops) != 1 || len(w.warnings) != 0 {
				t.Fatalf("stop %v, %+v, %d stops, %d warnings", w.lastDecision.Stop, first, len(w.stops), len(w.warnings))
			}
			w.advance(3 * hour)
			if !w.lastDecision.Stop || len(w.stops) != 1 || w.status.Stopped.Times != 1 {
				t.Errorf("after three hours with pods: stop %v, %d stops", w.lastDecision.Stop, len(w.stops))
			}
			w.observed = timelimit.Observation{}
			w.advance(time.Minute)
			if w.lastDecision.Stop || w.status.State != v1alpha1.ClockStateStopped {
				t.Errorf("without pods: stop %v, %s", w.lastDecision.Stop, w.status.State)
			}
			if w.startPods(); w.lastDecision.Stop || w.status.Stopped != nil {
				t.Errorf("in a later project: stop %v, %+v", w.lastDecision.Stop, w.status.Stopped)
			}
		})
	}
}

// Pods that were admitted before the deletion and start after the stop are stopped, too.
func TestDecideProjectDeletionStopsLaterPods(t *testing.T) {
	w := newSimulation()
	w.observed = timelimit.Observation{ProjectEnd: v1alpha1.EndProjectDeleted, HasPodsToEnd: true}
	w.decide()
	w.now = w.now.Add(time.Minute)
	w.observed = timelimit.Observation{ProjectEnd: v1alpha1.EndProjectDeleted, HasPodsToEnd: true, Running: true, RunningSince: w.now}
	w.decide()
	if !w.lastDecision.Stop || w.status.Stopped == nil || !w.status.Stopped.At.Time.Equal(w.now) {
		t.Errorf("stop %v, %+v", w.lastDecision.Stop, w.status.Stopped)
	}
}
