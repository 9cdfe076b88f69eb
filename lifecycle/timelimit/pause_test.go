// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// A pause holds the end of a workload until the shortest lead, 30 minutes, after it. The longest lead
// that is due announces the held end at once.
func TestDecidePauseHoldsRuntimeLimit(t *testing.T) {
	pause := func(w *simulation, span time.Duration) { w.observed.PausedUntil = w.now.Add(span); w.decide() }
	resume := func(w *simulation) { w.observed.PausedUntil = w.now; w.decide() }
	tests := map[string]struct {
		live            func(w *simulation)
		warnings, stops []string
	}{
		"the limit falls in the pause": {
			live:     func(w *simulation) { w.advance(47 * hour); pause(w, 3*hour); w.advance(6 * hour) },
			warnings: []string{"24h0m0s", "44h0m0s", "47h0m0s", "50h0m0s"}, stops: []string{"50h30m0s"},
		},
		"the last warning came before the pause": {
			live:     func(w *simulation) { w.advance(47*hour + 50*time.Minute); pause(w, 3*hour); w.advance(6 * hour) },
			warnings: []string{"24h0m0s", "44h0m0s", "47h30m0s", "47h50m0s", "50h50m0s"}, stops: []string{"51h20m0s"},
		},
		"the limit comes after the pause": {
			live:     func(w *simulation) { w.advance(40 * hour); pause(w, 8*hour); w.advance(16 * hour) },
			warnings: []string{"24h0m0s", "44h0m0s", "47h30m0s"}, stops: []string{"48h0m0s"},
		},
		"the pause is prolonged": {
			live: func(w *simulation) {
				w.advance(47 * hour)
				pause(w, 2*hour)
				w.advance(hour)
				pause(w, 5*hour)
				w.advance(8 * hour)
			},
			warnings: []string{"24h0m0s", "44h0m0s", "47h0m0s", "48h0m0s", "49h30m0s", "53h0m0s"}, stops: []string{"53h30m0s"},
		},
		"the pause is ended early, past the limit": {
			live: func(w *simulation) {
				w.advance(47 * hour)
				pause(w, 24*hour)
				w.advance(2 * hour)
				resume(w)
				w.advance(8 * hour)
			},
			warnings: []string{"24h0m0s", "44h0m0s", "47h30m0s", "49h0m0s"}, stops: []string{"49h30m0s"},
		},
		"the pause is ended early, before the limit": {
			live: func(w *simulation) {
				w.advance(30 * hour)
				pause(w, 24*hour)
				w.advance(hour)
				resume(w)
				w.advance(20 * hour)
			},
			warnings: []string{"24h0m0s", "30h30m0s", "44h0m0s", "47h30m0s"}, stops: []string{"48h0m0s"},
		},
		"lifecycle was away for the pause": {
			live: func(w *simulation) {
				w.advance(47*hour + 45*time.Minute)
				w.observed.PausedUntil = w.now.Add(2 * hour)
				w.now = w.now.Add(4 * hour)
				w.advance(6 * hour)
			},
			warnings: []string{"24h0m0s", "44h0m0s", "47h30m0s", "51h45m0s"}, stops: []string{"52h15m0s"},
		},
		"the pods end in the pause and start after it": {
			live: func(w *simulation) {
				w.advance(47 * hour)
				pause(w, 10*hour)
				w.advance(2 * hour) // 49 h of running time
				w.endPods()
				w.limits.ResetAfter = period.MustParseDuration("100h")
				w.advance(20 * hour)
				w.startPods()
				w.advance(6 * hour)
			},
			warnings: []string{"24h0m0s", "44h0m0s", "47h0m0s", "69h0m0s"}, stops: []string{"69h30m0s"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newSimulation()
			w.startPods()
			tc.live(w)
			if diff := cmp.Diff(tc.warnings, formatTimes(t, withoutSuperseded(w.warnings))); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.stops, formatTimes(t, w.stops)); diff != "" {
				t.Errorf("stops (-want +got):\n%s", diff)
			}
		})
	}
}

func withoutSuperseded(all []timedWarning) (given []timedWarning) {
	for _, one := range all {
		if !one.Superseded {
			given = append(given, one)
		}
	}
	return given
}

// The idle timeout and the start timeout are held likewise, and announced again when the pause ends.
func TestDecidePauseHoldsTimeouts(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		w := newSimulation()
		w.limits.IdleTimeout = period.MustParseDuration("2h")
		w.startPods()
		for range 6 * 60 {
			w.now = w.now.Add(time.Minute)
			if w.now.Equal(noon.Add(90 * time.Minute)) {
				w.observed.PausedUntil = w.now.Add(2 * hour)
			}
			w.recordSample(noon)
			if w.lastDecision.Stopped {
				break
			}
		}
		if diff := cmp.Diff([]string{"1h0m0s", "3h30m0s"}, formatTimes(t, w.warnings)); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"4h0m0s"}, formatTimes(t, w.stops)); diff != "" {
			t.Errorf("stops (-want +got):\n%s", diff)
		}
	})
	t.Run("start timeout, and lifecycle was away", func(t *testing.T) {
		w := newSimulation()
		w.limits.StartTimeout = period.MustParseDuration("2h")
		w.observed.StartingSince = w.now
		w.advance(90 * time.Minute)
		w.observed.PausedUntil = w.now.Add(hour)
		w.now = w.now.Add(3 * hour)
		w.advance(3 * hour)
		if diff := cmp.Diff([]string{"1h0m0s", "4h30m0s"}, formatTimes(t, w.warnings)); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"5h0m0s"}, formatTimes(t, w.stops)); diff != "" {
			t.Errorf("stops (-want +got):\n%s", diff)
		}
	})
}

// A pause holds the stops of a suspended project until the shortest lead after it, and not those of
// a project that is deleted.
func TestDecidePauseHoldsProjectEnd(t *testing.T) {
	for reason, stops := range map[v1alpha1.EndReason][]string{
		v1alpha1.EndProjectSuspended: {"4h30m0s"}, v1alpha1.EndProjectDeleted: {"1h0m0s"},
	} {
		w := newSimulation()
		w.startPods()
		w.observed.PausedUntil = noon.Add(4 * hour)
		w.advance(hour)
		w.observed.ProjectEnd, w.observed.HasPodsToEnd = reason, true
		w.advance(8 * hour)
		if diff := cmp.Diff(stops, formatTimes(t, w.stops)); diff != "" {
			t.Errorf("%s: stops (-want +got):\n%s", reason, diff)
		}
	}
}

// A workload that must not run is not stopped again in the pause, but after it.
func TestDecidePauseHoldsRepeatedStops(t *testing.T) {
	w := newSimulation()
	w.startPods()
	w.advance(48 * hour)
	if !w.lastDecision.Stop {
		t.Fatal("the workload is not stopped at its limit")
	}
	w.observed.PausedUntil = w.now.Add(hour)
	if d := w.decide(); d.Stop || !d.NextDecision.Equal(w.observed.PausedUntil) {
		t.Errorf("stop %v, next decision %v in the pause", d.Stop, d.NextDecision)
	}
	w.now = w.observed.PausedUntil
	if d := w.decide(); !d.Stop {
		t.Error("the workload is not stopped again after the pause")
	}
}

// If the record of a pause is lost, or names an end before the end that it held, what it held keeps the shortest lead from
// then, and is announced for that time once.
func TestDecidePauseWhoseRecordIsLost(t *testing.T) {
	for name, until := range map[string]time.Time{
		"the object was deleted":                  {},
		"its end was written as an earlier time":  noon.Add(110 * time.Minute),
		"its end is the time of the held end":     noon.Add(2 * hour),
		"its end was written by a clock far back": noon.Add(-100 * hour),
	} {
		t.Run(name, func(t *testing.T) {
			w := newSimulation()
			w.limits.StartTimeout = period.MustParseDuration("2h")
			w.observed.StartingSince = w.now
			w.advance(90 * time.Minute)
			w.observed.PausedUntil = w.now.Add(10 * hour)
			w.advance(90 * time.Minute)
			w.observed.PausedUntil = until
			w.advance(10 * time.Minute)
			w.advance(6 * hour)
			if diff := cmp.Diff([]string{"1h0m0s", "3h0m0s"}, formatTimes(t, w.warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"3h30m0s"}, formatTimes(t, w.stops)); diff != "" {
				t.Errorf("stops (-want +got):\n%s", diff)
			}
		})
	}
}
