// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

const hour = time.Hour

func TestAWorkloadEnds(t *testing.T) {
	tests := map[string]struct {
		live            func(w *world)
		warnings, stops []string
	}{
		"at its limit, warned three times": {
			live:     func(w *world) { w.start(); w.run(72 * hour) },
			warnings: []string{"24h0m0s", "44h0m0s", "47h30m0s"}, stops: []string{"48h0m0s"},
		},
		"never, where nothing limits it": {
			live: func(w *world) { w.terms.MaxRuntime = period.Duration{}; w.start(); w.run(1000 * hour) },
		},
		"never, while its project is exempt or held": {
			live: func(w *world) { w.terms.Spared = true; w.start(); w.run(1000 * hour) },
		},
		"never in a dry run": {
			live: func(w *world) { w.terms.DryRun = true; w.start(); w.run(1000 * hour) },
		},
		"later by the time in which it did not run": {
			live: func(w *world) {
				w.start()
				w.run(30 * hour)
				w.end()
				w.run(30 * time.Minute)
				w.start()
				w.run(72 * hour)
			},
			warnings: []string{"24h0m0s", "44h30m0s", "48h0m0s"}, stops: []string{"48h30m0s"},
		},
		"afresh after the reset time": {
			live: func(w *world) {
				w.start()
				w.run(30 * hour)
				w.end()
				w.run(hour)
				w.start()
				w.run(47 * hour)
			},
			warnings: []string{"24h0m0s", "55h0m0s", "75h0m0s"},
		},
		"announced once more after a week away, and not before the shortest lead is over": {
			live:     func(w *world) { w.start(); w.run(hour); w.now = w.now.Add(7 * 24 * hour); w.run(hour) },
			warnings: []string{"169h0m0s superseded", "169h0m0s superseded", "169h0m0s"}, stops: []string{"169h30m0s"},
		},
		"as its pods say, where that is tighter": {
			live:     func(w *world) { w.terms.MaxRuntime = period.MustParseDuration("6h"); w.start(); w.run(24 * hour) },
			warnings: []string{"2h0m0s", "5h30m0s"}, stops: []string{"6h0m0s"},
		},
		"never unannounced, however short its limit": {
			live:     func(w *world) { w.terms.MaxRuntime = period.MustParseDuration("10m"); w.start(); w.run(24 * hour) },
			warnings: []string{"0s"}, stops: []string{"30m0s"},
		},
		"with the longest lead left, where the limit is cut": {
			live: func(w *world) {
				w.start()
				w.run(10 * hour)
				w.terms.MaxRuntime = period.MustParseDuration("12h")
				w.run(72 * hour)
			},
			warnings: []string{"10h0m0s", "30h0m0s", "33h30m0s"}, stops: []string{"34h0m0s"},
		},
		"with what was left, where that is less than the longest lead": {
			live: func(w *world) {
				w.start()
				w.run(40 * hour)
				w.terms.MaxRuntime = period.MustParseDuration("12h")
				w.run(72 * hour)
			},
			warnings: []string{"24h0m0s", "44h0m0s", "47h30m0s"}, stops: []string{"48h0m0s"},
		},
		"with the longest lead left, where a limit comes": {
			live: func(w *world) {
				limit := w.terms.MaxRuntime
				w.terms.MaxRuntime = period.Duration{}
				w.start()
				w.run(100 * hour)
				w.terms.MaxRuntime = limit
				w.run(72 * hour)
			},
			warnings: []string{"100h0m0s", "120h0m0s", "123h30m0s"}, stops: []string{"124h0m0s"},
		},
		"with the longest lead left, where a dry run ends": {
			live: func(w *world) {
				w.terms.DryRun = true
				w.start()
				w.run(100 * hour)
				w.terms.DryRun = false
				w.run(72 * hour)
			},
			warnings: []string{"100h0m0s", "120h0m0s", "123h30m0s"}, stops: []string{"124h0m0s"},
		},
		"later by an extension, and warned anew": {
			live: func(w *world) {
				w.start()
				w.run(46 * hour)
				w.terms.Granted = []v1alpha1.ClockExtension{{Name: "more", By: period.MustParseDuration("1d")}}
				w.run(72 * hour)
			},
			warnings: []string{"24h0m0s", "44h0m0s", "48h0m0s", "68h0m0s", "71h30m0s"}, stops: []string{"72h0m0s"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := students()
			tc.live(w)
			if diff := cmp.Diff(tc.warnings, hours(t, w.warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.stops, hours(t, w.stops)); diff != "" {
				t.Errorf("stops (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatWasStopped(t *testing.T) {
	stopped := func() *world {
		w := students()
		w.start()
		w.run(48 * hour)
		return w
	}
	t.Run("is stopped as long as it runs, and counted once", func(t *testing.T) {
		w := stopped()
		w.run(30 * hour)
		if !w.last.Stop || len(w.stops) != 1 || w.status.Stopped.Times != 1 {
			t.Errorf("stop %v, %d stops, %d times; want it stopped on, once", w.last.Stop, len(w.stops), w.status.Stopped.Times)
		}
	})
	t.Run("is stopped again when somebody starts it", func(t *testing.T) {
		w := stopped()
		w.end()
		w.run(10 * time.Minute)
		w.start()
		if !w.last.Stop || w.status.Stopped.Times != 2 || w.status.State != v1alpha1.ClockStateStopped {
			t.Errorf("stop %v, %d times, %s", w.last.Stop, w.status.Stopped.Times, w.status.State)
		}
	})
	t.Run("begins anew after the reset time", func(t *testing.T) {
		w := stopped()
		w.end()
		w.run(hour)
		if w.status.State != v1alpha1.ClockStateWaiting || w.status.AccumulatedSeconds != 0 || !w.last.Released && len(w.status.Leads) > 0 {
			t.Errorf("state %s, %d s, leads %v", w.status.State, w.status.AccumulatedSeconds, w.status.Leads)
		}
		w.start()
		w.run(47 * hour)
		if w.last.Stop || w.status.State != v1alpha1.ClockStateRunning {
			t.Errorf("stop %v, state %s, want it to run", w.last.Stop, w.status.State)
		}
	})
	t.Run("may go on after an extension", func(t *testing.T) {
		w := stopped()
		w.end()
		w.terms.Granted = []v1alpha1.ClockExtension{{Name: "more", By: period.MustParseDuration("1d")}}
		if d := w.decide(); !d.Released || d.Status.Stopped != nil {
			t.Errorf("released %v, stopped %v", d.Released, d.Status.Stopped)
		}
		w.run(10 * time.Minute)
		w.start()
		w.run(72 * hour)
		if got := hours(t, w.stops); len(got) != 2 || got[1] != "72h10m0s" {
			t.Errorf("stops at %v, want the second at 72h10m", got)
		}
	})
	t.Run("goes on where the limit is taken away", func(t *testing.T) {
		w := stopped()
		w.end()
		w.terms.MaxRuntime = period.Duration{}
		if d := w.decide(); !d.Released || d.Status.State != v1alpha1.ClockStatePaused {
			t.Errorf("released %v, state %s", d.Released, d.Status.State)
		}
	})
}

func TestAnIdleWorkload(t *testing.T) {
	idle := func() *world {
		w := students()
		w.terms.IdleTimeout = period.MustParseDuration("2h")
		w.start()
		return w
	}
	// sampled lets time pass with a sample every minute.
	sampled := func(w *world, span time.Duration, active func(now time.Time) time.Time) {
		for end := w.now.Add(span); w.now.Before(end); w.now = w.now.Add(time.Minute) {
			w.sample(active(w.now))
		}
	}
	never := func(time.Time) time.Time { return noon }
	tests := map[string]struct {
		live            func(w *world)
		warnings, stops []string
	}{
		"ends early, warned at half the time-out": {
			live:     func(w *world) { sampled(w, 3*hour, never) },
			warnings: []string{"1h0m0s"}, stops: []string{"2h0m0s"},
		},
		"does not end while it is used": {
			live: func(w *world) { sampled(w, 10*hour, func(now time.Time) time.Time { return now }) },
		},
		"does not end where nobody can tell": {
			live: func(w *world) { w.seen.Use = useUnknown; w.run(10 * hour) },
		},
		"does not end by what is not sampled": {
			live:     func(w *world) { sampled(w, 90*time.Minute, never); w.run(10 * hour) },
			warnings: []string{"1h0m0s"},
		},
		"stands still while nobody can tell": {
			live: func(w *world) {
				sampled(w, 90*time.Minute, never)
				w.seen.Use = useUnknown
				w.run(10 * hour)
				sampled(w, hour, never)
			},
			warnings: []string{"1h0m0s"}, stops: []string{"12h0m0s"},
		},
		"is warned again after it was used": {
			live: func(w *world) {
				sampled(w, 90*time.Minute, never)
				used := w.now
				sampled(w, 90*time.Minute, func(time.Time) time.Time { return used })
			},
			warnings: []string{"1h0m0s", "2h30m0s"},
		},
		"is given half the time-out where the warning comes late": {
			live: func(w *world) {
				w.now = w.now.Add(5 * hour)
				sampled(w, 2*hour, never)
			},
			warnings: []string{"5h0m0s"}, stops: []string{"6h0m0s"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := idle()
			tc.live(w)
			if diff := cmp.Diff(tc.warnings, hours(t, w.warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.stops, hours(t, w.stops)); diff != "" {
				t.Errorf("stops (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("may be started again at once, and its time goes on", func(t *testing.T) {
		w := idle()
		sampled(w, 2*hour+time.Minute, never)
		w.end()
		w.start()
		if w.status.State != v1alpha1.ClockStateRunning || w.status.AccumulatedSeconds == 0 || w.last.Stop {
			t.Errorf("state %s, %d s, stop %v", w.status.State, w.status.AccumulatedSeconds, w.last.Stop)
		}
	})
}

func TestAnActiveClockCountsUseOnly(t *testing.T) {
	w := students()
	w.terms.Clock = v1alpha1.ClockActive
	w.start()
	for i := range 10 * 60 {
		w.now = noon.Add(time.Duration(i) * time.Minute)
		w.sample(later(noon, earlier(w.now, noon.Add(2*hour))))
	}
	if got := w.status.AccumulatedSeconds; got != 2*60*60 || w.status.RunningSince != nil {
		t.Errorf("accumulated %d s, running since %v; want the two hours of use", got, w.status.RunningSince)
	}
}
