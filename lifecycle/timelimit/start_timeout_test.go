// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

// bindPods binds pods that do not start.
func (w *simulation) bindPods() {
	w.observed = timelimit.Observation{StartingSince: w.now}
	w.decide()
}

// A workload that is started again after its stop is counted once, although its pods are stopped
// before they run, or run later: what starts it again and again is reported.
func TestRestartIsCountedWhenPodsAreBound(t *testing.T) {
	w := newSimulation()
	w.startPods()
	w.advance(48 * hour)
	for times := int32(1); times <= 4; times++ {
		if got := w.status.Stopped.Times; got != times {
			t.Errorf("%d stops are counted, want %d", got, times)
		}
		w.endPods()
		w.now = w.now.Add(time.Minute)
		w.bindPods()
		if times%2 == 0 {
			w.startPods()
		}
	}
}

// Protects invariant 5: pods that hold GPUs and do not start are stopped after a warning.
func TestDecideStartTimeout(t *testing.T) {
	tests := map[string]struct {
		live            func(w *simulation)
		warnings, stops []string
	}{
		"ends after the timeout, warned at half of it": {
			live:     func(w *simulation) { w.bindPods(); w.advance(hour) },
			warnings: []string{"15m0s"}, stops: []string{"30m0s"},
		},
		"does not end if a pod starts": {
			live:     func(w *simulation) { w.bindPods(); w.advance(29 * time.Minute); w.startPods(); w.advance(hour) },
			warnings: []string{"15m0s"},
		},
		"does not end while no pod is bound": {
			live: func(w *simulation) { w.bindPods(); w.advance(10 * time.Minute); w.endPods(); w.advance(hour) },
		},
		"begins again with other pods": {
			live: func(w *simulation) {
				w.bindPods()
				w.advance(20 * time.Minute)
				w.bindPods()
				w.advance(hour)
			},
			warnings: []string{"15m0s", "35m0s"}, stops: []string{"50m0s"},
		},
		"leaves half the timeout if the warning is late": {
			live: func(w *simulation) {
				w.bindPods()
				w.now = w.now.Add(5 * hour)
				w.advance(hour)
			},
			warnings: []string{"5h0m0s"}, stops: []string{"5h15m0s"},
		},
		"never, while the project is exempt": {
			live: func(w *simulation) { w.limits.Exempt = true; w.bindPods(); w.advance(100 * hour) },
		},
		"never in a dry run": {
			live: func(w *simulation) { w.limits.DryRun = true; w.bindPods(); w.advance(100 * hour) },
		},
		"again after each start, and each is the first": {
			live: func(w *simulation) {
				w.bindPods()
				w.advance(30 * time.Minute)
				w.endPods()
				w.advance(10 * time.Minute)
				w.bindPods()
				w.advance(hour)
				if w.status.Stopped.Times != 1 {
					w.warnings = nil
				}
			},
			warnings: []string{"15m0s", "55m0s"}, stops: []string{"30m0s", "1h10m0s"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newSimulation()
			w.limits.StartTimeout = period.MustParseDuration("30m")
			tc.live(w)
			if diff := cmp.Diff(tc.warnings, formatTimes(t, w.warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.stops, formatTimes(t, w.stops)); diff != "" {
				t.Errorf("stops (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("is stopped until its pods are gone, and counts no running time", func(t *testing.T) {
		w := newSimulation()
		w.limits.StartTimeout = period.MustParseDuration("30m")
		w.bindPods()
		w.advance(3 * hour)
		s := &w.status
		if !w.lastDecision.Stop || len(w.stops) != 1 || s.Stopped.Reason != v1alpha1.EndStartTimeout || s.AccumulatedSeconds != 0 || s.RunningSince != nil {
			t.Errorf("stop %v, %d stops, %+v, %d s", w.lastDecision.Stop, len(w.stops), s.Stopped, s.AccumulatedSeconds)
		}
		w.endPods()
		w.advance(time.Minute)
		w.startPods()
		if w.lastDecision.Stop || s.Stopped != nil || s.State != v1alpha1.ClockStateRunning {
			t.Errorf("started again: stop %v, %+v, %s", w.lastDecision.Stop, s.Stopped, s.State)
		}
	})
	t.Run("a stop at the limit holds for pods that do not start", func(t *testing.T) {
		w := newSimulation()
		w.limits.StartTimeout = period.MustParseDuration("30m")
		w.startPods()
		w.advance(48 * hour)
		w.endPods()
		w.advance(10 * time.Minute)
		w.bindPods()
		if !w.lastDecision.Stop || len(w.stops) != 1 {
			t.Errorf("stop %v, %d stops", w.lastDecision.Stop, len(w.stops))
		}
	})
	t.Run("a dry run reports what it would stop", func(t *testing.T) {
		w := newSimulation()
		w.limits.StartTimeout, w.limits.DryRun = period.MustParseDuration("30m"), true
		w.bindPods()
		w.advance(hour)
		if w.lastDecision.WouldStop != v1alpha1.EndStartTimeout {
			t.Errorf("would stop: %q", w.lastDecision.WouldStop)
		}
	})
}
