// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

const hour = time.Hour

func TestDecideStopsAtRuntimeLimit(t *testing.T) {
	tests := map[string]struct {
		live            func(w *simulation)
		warnings, stops []string
	}{
		"at its limit, warned three times": {
			live:     func(w *simulation) { w.startPods(); w.advance(72 * hour) },
			warnings: []string{"24h0m0s", "44h0m0s", "47h30m0s"}, stops: []string{"48h0m0s"},
		},
		"never, without limit": {
			live: func(w *simulation) { w.limits.MaxRuntime = period.Duration{}; w.startPods(); w.advance(1000 * hour) },
		},
		"never, while the project is exempt or on hold": {
			live: func(w *simulation) { w.limits.Exempt = true; w.startPods(); w.advance(1000 * hour) },
		},
		"never in a dry run": {
			live: func(w *simulation) { w.limits.DryRun = true; w.startPods(); w.advance(1000 * hour) },
		},
		"later by the time without running pods": {
			live: func(w *simulation) {
				w.startPods()
				w.advance(30 * hour)
				w.endPods()
				w.advance(30 * time.Minute)
				w.startPods()
				w.advance(72 * hour)
			},
			warnings: []string{"24h0m0s", "44h30m0s", "48h0m0s"}, stops: []string{"48h30m0s"},
		},
		"with a new clock after the reset time": {
			live: func(w *simulation) {
				w.startPods()
				w.advance(30 * hour)
				w.endPods()
				w.advance(hour)
				w.startPods()
				w.advance(47 * hour)
			},
			warnings: []string{"24h0m0s", "55h0m0s", "75h0m0s"},
		},
		"after a week of downtime, announced again and not before the shortest lead has passed": {
			live:     func(w *simulation) { w.startPods(); w.advance(hour); w.now = w.now.Add(7 * 24 * hour); w.advance(hour) },
			warnings: []string{"169h0m0s superseded", "169h0m0s superseded", "169h0m0s"}, stops: []string{"169h30m0s"},
		},
		"by the shortest lead later, if an outage delayed the last warning beyond the limit": {
			live: func(w *simulation) {
				w.startPods()
				w.advance(25 * hour)
				w.now = w.now.Add(25 * hour)
				w.advance(hour)
			},
			warnings: []string{"24h0m0s", "50h0m0s superseded", "50h0m0s"}, stops: []string{"50h30m0s"},
		},
		"by the shortest lead later, if an outage delayed the last warning": {
			live: func(w *simulation) {
				w.startPods()
				w.advance(46 * hour)
				w.now = w.now.Add(110 * time.Minute)
				w.advance(hour)
			},
			warnings: []string{"24h0m0s", "44h0m0s", "47h50m0s"}, stops: []string{"48h20m0s"},
		},
		"at once after an outage, if it was announced before": {
			live: func(w *simulation) {
				w.startPods()
				w.advance(47*hour + 45*time.Minute)
				w.now = w.now.Add(5 * hour)
				w.advance(hour)
			},
			warnings: []string{"24h0m0s", "44h0m0s", "47h30m0s"}, stops: []string{"52h45m0s"},
		},
		"at the pods' own limit, if that is lower": {
			live: func(w *simulation) {
				w.limits.MaxRuntime = period.MustParseDuration("6h")
				w.startPods()
				w.advance(24 * hour)
			},
			warnings: []string{"2h0m0s", "5h30m0s"}, stops: []string{"6h0m0s"},
		},
		"never without announcement, however short the limit": {
			live: func(w *simulation) {
				w.limits.MaxRuntime = period.MustParseDuration("10m")
				w.startPods()
				w.advance(24 * hour)
			},
			warnings: []string{"0s"}, stops: []string{"30m0s"},
		},
		"with the longest lead left, if the limit is lowered": {
			live: func(w *simulation) {
				w.startPods()
				w.advance(10 * hour)
				w.limits.MaxRuntime = period.MustParseDuration("12h")
				w.advance(72 * hour)
			},
			warnings: []string{"10h0m0s", "30h0m0s", "33h30m0s"}, stops: []string{"34h0m0s"},
		},
		"with the old remainder, if that is less than the longest lead": {
			live: func(w *simulation) {
				w.startPods()
				w.advance(40 * hour)
				w.limits.MaxRuntime = period.MustParseDuration("12h")
				w.advance(72 * hour)
			},
			warnings: []string{"24h0m0s", "44h0m0s", "47h30m0s"}, stops: []string{"48h0m0s"},
		},
		"with the longest lead left, if a limit is added": {
			live: func(w *simulation) {
				limit := w.limits.MaxRuntime
				w.limits.MaxRuntime = period.Duration{}
				w.startPods()
				w.advance(100 * hour)
				w.limits.MaxRuntime = limit
				w.advance(72 * hour)
			},
			warnings: []string{"100h0m0s", "120h0m0s", "123h30m0s"}, stops: []string{"124h0m0s"},
		},
		"with the longest lead left, if a dry run ends": {
			live: func(w *simulation) {
				w.limits.DryRun = true
				w.startPods()
				w.advance(100 * hour)
				w.limits.DryRun = false
				w.advance(72 * hour)
			},
			warnings: []string{"100h0m0s", "120h0m0s", "123h30m0s"}, stops: []string{"124h0m0s"},
		},
		"later by an extension, and warned again": {
			live: func(w *simulation) {
				w.startPods()
				w.advance(46 * hour)
				w.limits.GrantedExtensions = []v1alpha1.ClockExtension{{Name: "more", By: period.MustParseDuration("1d")}}
				w.advance(72 * hour)
			},
			warnings: []string{"24h0m0s", "44h0m0s", "48h0m0s", "68h0m0s", "71h30m0s"}, stops: []string{"72h0m0s"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newSimulation()
			tc.live(w)
			if diff := cmp.Diff(tc.warnings, formatTimes(t, w.warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.stops, formatTimes(t, w.stops)); diff != "" {
				t.Errorf("stops (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideAfterStop(t *testing.T) {
	stopped := func() *simulation {
		w := newSimulation()
		w.startPods()
		w.advance(48 * hour)
		return w
	}
	t.Run("is stopped while it runs, and counted once", func(t *testing.T) {
		w := stopped()
		w.advance(30 * hour)
		if !w.lastDecision.Stop || len(w.stops) != 1 || w.status.Stopped.Times != 1 {
			t.Errorf("stop %v, %d stops, %d times; want another stop, counted once", w.lastDecision.Stop, len(w.stops), w.status.Stopped.Times)
		}
	})
	t.Run("is stopped when its pods have ended, and not before", func(t *testing.T) { // invariant 11
		w := stopped()
		if w.status.State != v1alpha1.ClockStateStopping {
			t.Errorf("while its pods run it is %s", w.status.State)
		}
		w.endPods()
		if w.status.State != v1alpha1.ClockStateStopped {
			t.Errorf("when its pods have ended it is %s", w.status.State)
		}
	})
	t.Run("is stopped again when it is started", func(t *testing.T) {
		w := stopped()
		w.endPods()
		w.advance(10 * time.Minute)
		w.startPods()
		if !w.lastDecision.Stop || w.status.Stopped.Times != 2 || w.status.State != v1alpha1.ClockStateStopping {
			t.Errorf("stop %v, %d times, %s", w.lastDecision.Stop, w.status.Stopped.Times, w.status.State)
		}
	})
	t.Run("has a new clock after the reset time", func(t *testing.T) {
		w := stopped()
		w.endPods()
		w.advance(hour)
		if w.status.State != v1alpha1.ClockStatePending || w.status.AccumulatedSeconds != 0 || !w.lastDecision.Released && len(w.status.Leads) > 0 {
			t.Errorf("state %s, %d s, leads %v", w.status.State, w.status.AccumulatedSeconds, w.status.Leads)
		}
		w.startPods()
		w.advance(47 * hour)
		if w.lastDecision.Stop || w.status.State != v1alpha1.ClockStateRunning {
			t.Errorf("stop %v, state %s, want it to run", w.lastDecision.Stop, w.status.State)
		}
	})
	t.Run("may continue after an extension", func(t *testing.T) {
		w := stopped()
		w.endPods()
		w.limits.GrantedExtensions = []v1alpha1.ClockExtension{{Name: "more", By: period.MustParseDuration("1d")}}
		if d := w.decide(); !d.Released || d.Status.Stopped != nil {
			t.Errorf("released %v, stopped %v", d.Released, d.Status.Stopped)
		}
		w.advance(10 * time.Minute)
		w.startPods()
		w.advance(72 * hour)
		if got := formatTimes(t, w.stops); len(got) != 2 || got[1] != "72h10m0s" {
			t.Errorf("stops at %v, want the second at 72h10m", got)
		}
	})
	t.Run("continues if the limit is removed", func(t *testing.T) {
		w := stopped()
		w.endPods()
		w.limits.MaxRuntime = period.Duration{}
		if d := w.decide(); !d.Released || d.Status.State != v1alpha1.ClockStatePaused {
			t.Errorf("released %v, state %s", d.Released, d.Status.State)
		}
	})
}

func TestDecideIdleTimeout(t *testing.T) {
	idle := func() *simulation {
		w := newSimulation()
		w.limits.IdleTimeout = period.MustParseDuration("2h")
		w.startPods()
		return w
	}
	// sampled advances time with a sample every minute.
	sampled := func(w *simulation, span time.Duration, active func(now time.Time) time.Time) {
		for end := w.now.Add(span); w.now.Before(end); w.now = w.now.Add(time.Minute) {
			w.recordSample(active(w.now))
		}
	}
	never := func(time.Time) time.Time { return noon }
	tests := map[string]struct {
		live            func(w *simulation)
		warnings, stops []string
	}{
		"ends early, warned at half the timeout": {
			live:     func(w *simulation) { sampled(w, 3*hour, never) },
			warnings: []string{"1h0m0s"}, stops: []string{"2h0m0s"},
		},
		"does not end while it is used": {
			live: func(w *simulation) { sampled(w, 10*hour, func(now time.Time) time.Time { return now }) },
		},
		"does not end while utilization is unknown": {
			live: func(w *simulation) { w.observed.Utilization = unknownUtilization; w.advance(10 * hour) },
		},
		"does not end by time without sample": {
			live:     func(w *simulation) { sampled(w, 90*time.Minute, never); w.advance(10 * hour) },
			warnings: []string{"1h0m0s"},
		},
		"pauses while utilization is unknown": {
			live: func(w *simulation) {
				sampled(w, 90*time.Minute, never)
				w.observed.Utilization = unknownUtilization
				w.advance(10 * hour)
				sampled(w, hour, never)
			},
			warnings: []string{"1h0m0s"}, stops: []string{"12h0m0s"},
		},
		"is warned again after it was used": {
			live: func(w *simulation) {
				sampled(w, 90*time.Minute, never)
				used := w.now
				sampled(w, 90*time.Minute, func(time.Time) time.Time { return used })
			},
			warnings: []string{"1h0m0s", "2h30m0s"},
		},
		"leaves half the timeout if the warning is late": {
			live: func(w *simulation) {
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
			if diff := cmp.Diff(tc.warnings, formatTimes(t, w.warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.stops, formatTimes(t, w.stops)); diff != "" {
				t.Errorf("stops (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("can be started again at once, and the clock continues", func(t *testing.T) {
		w := idle()
		sampled(w, 2*hour+time.Minute, never)
		w.endPods()
		w.startPods()
		if w.status.State != v1alpha1.ClockStateRunning || w.status.AccumulatedSeconds == 0 || w.lastDecision.Stop {
			t.Errorf("state %s, %d s, stop %v", w.status.State, w.status.AccumulatedSeconds, w.lastDecision.Stop)
		}
	})
}

func TestActiveClockCountsUtilizationOnly(t *testing.T) {
	w := newSimulation()
	w.limits.Clock = v1alpha1.ClockActive
	w.startPods()
	for i := range 10 * 60 {
		w.now = noon.Add(time.Duration(i) * time.Minute)
		w.recordSample(policytime.Later(noon, earlierOf(w.now, noon.Add(2*hour))))
	}
	if got := w.status.AccumulatedSeconds; got != 2*60*60 || w.status.RunningSince != nil {
		t.Errorf("accumulated %d s, running since %v; want the two hours of use", got, w.status.RunningSince)
	}
}

var noon = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)

// simulation is a workload whose decisions are applied at once.
// The clock records from which limit the department or the project shortened its own while it
// ran, and nothing if the limit is the workload's own choice or is long enough again.
func TestDecideRecordsShortenedLimit(t *testing.T) {
	set := func(limit string, byPods bool) func(*simulation) {
		return func(w *simulation) {
			w.limits.MaxRuntime, w.limits.SetByPods = period.MustParseDuration(limit), byPods
			w.decide()
		}
	}
	run := func(span time.Duration) func(*simulation) { return func(w *simulation) { w.advance(span) } }
	steps := func(all ...func(*simulation)) []func(*simulation) { return all }
	tests := map[string]struct {
		steps         []func(*simulation)
		inForce, from string
	}{
		"never changed":                   {steps(run(hour)), "48h", ""},
		"shortened before it started":     {steps(set("12h", false), (*simulation).startPods), "12h", ""},
		"shortened":                       {steps(run(hour), set("30h", false)), "30h", "48h"},
		"shortened twice":                 {steps(run(hour), set("40h", false), set("30h", false)), "30h", "48h"},
		"shortened to the longest lead":   {steps(run(10*hour), set("12h", false)), "1d10h", "48h"},
		"too late to end earlier":         {steps(run(40*hour), set("12h", false)), "2d", ""},
		"shortened and corrected":         {steps(run(hour), set("30h", false), set("48h", false)), "48h", ""},
		"shortened and corrected in part": {steps(run(hour), set("30h", false), set("40h", false)), "40h", "48h"},
		"prolonged":                       {steps(run(hour), set("72h", false)), "72h", ""},
		"requested by a later pod":        {steps(run(hour), set("30h", true)), "30h", ""},
		"shortened and then requested":    {steps(run(hour), set("40h", false), set("30h", true)), "30h", ""},
		"set after a time without limit":  {steps(func(w *simulation) { w.limits.Exempt = true }, run(hour), func(w *simulation) { w.limits.Exempt = false; w.decide() }), "48h", "99999d"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newSimulation()
			if name != "shortened before it started" {
				w.startPods()
			}
			for _, step := range tc.steps {
				step(w)
			}
			from := ""
			if before := w.status.Limit.ShortenedFrom; before != nil {
				from = before.String()
			}
			if got := w.status.Limit.InForce.String(); got != tc.inForce || from != tc.from {
				t.Errorf("limit %s, shortened from %q; want %s from %q", got, from, tc.inForce, tc.from)
			}
		})
	}
}

type simulation struct {
	now      time.Time
	status   v1alpha1.WorkloadClockStatus
	observed timelimit.Observation
	limits   timelimit.EffectiveLimits

	warnings     []timedWarning
	stops        []timedWarning
	lastDecision timelimit.Decision
}

// timedWarning is a warning or a stop with the time of its record.
type timedWarning struct {
	timelimit.Warning
	at time.Time
}

func newSimulation() *simulation {
	return &simulation{now: noon, limits: timelimit.EffectiveLimits{
		Limits: v1alpha1.Limits{MaxRuntime: period.MustParseDuration("48h"), Clock: v1alpha1.ClockRunning, ResetAfter: period.MustParseDuration("1h")},
		Leads:  []time.Duration{24 * time.Hour, 4 * time.Hour, 30 * time.Minute},
	}}
}

// decide decides once and records the result.
func (w *simulation) decide() timelimit.Decision {
	d := timelimit.Decide(w.now, w.status, w.observed, w.limits)
	w.status, w.lastDecision = d.Status, d
	w.limits.GrantedExtensions = nil
	for _, warning := range d.Warnings {
		w.warnings = append(w.warnings, timedWarning{warning, w.now})
	}
	if d.Stopped {
		w.stops = append(w.stops, timedWarning{timelimit.Warning{Reason: d.Status.Stopped.Reason}, w.now})
	}
	return d
}

// advance advances time and decides at each NextDecision.
func (w *simulation) advance(span time.Duration) {
	end := w.now.Add(span)
	for d := w.decide(); !d.NextDecision.IsZero() && !d.NextDecision.After(end); d = w.decide() {
		w.now = d.NextDecision
	}
	w.now = end
	w.decide()
}

// startPods starts pods, and endPods ends them.
func (w *simulation) startPods() {
	w.observed.Running, w.observed.RunningSince = true, w.now
	w.decide()
}

func (w *simulation) endPods() {
	w.observed = timelimit.Observation{PausedUntil: w.observed.PausedUntil}
	w.decide()
}

func (w *simulation) recordSample(lastActive time.Time) {
	w.observed.Utilization = timelimit.Utilization{Known: true, LastActive: lastActive, SampledAt: w.now}
	w.decide()
}

func formatTimes(t *testing.T, list []timedWarning) (at []string) {
	t.Helper()
	for _, one := range list {
		text := one.at.Sub(noon).String()
		if one.Superseded {
			text += " superseded"
		}
		at = append(at, text)
	}
	return at
}

var unknownUtilization = timelimit.Utilization{}

func earlierOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
