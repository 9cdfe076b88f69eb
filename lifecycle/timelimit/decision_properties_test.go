// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

// runRandomEvents applies random events to a workload and checks the invariants after each.
func runRandomEvents(t *rapid.T, w *simulation) {
	check := func() { checkDecision(t, w) }
	events := map[string]func(*rapid.T){
		"time":   func(t *rapid.T) { w.now = w.now.Add(drawMinutes(t, 1, 60*60)); check() },
		"run":    func(t *rapid.T) { w.advance(drawMinutes(t, 1, 60*60)); check() },
		"start":  func(*rapid.T) { w.observed.Running, w.observed.RunningSince = true, w.now; check() },
		"end":    func(*rapid.T) { w.observed = timelimit.Observation{PausedUntil: w.observed.PausedUntil}; check() },
		"limit":  func(t *rapid.T) { changeLimit(t, w); check() },
		"exempt": func(t *rapid.T) { w.limits.Exempt = rapid.Bool().Draw(t, "exempt"); check() },
		"dry":    func(t *rapid.T) { w.limits.DryRun = rapid.Bool().Draw(t, "dry run"); check() },
		"sample": func(t *rapid.T) {
			known := rapid.Bool().Draw(t, "known")
			w.observed.Utilization = timelimit.Utilization{Known: known, LastActive: w.now.Add(-drawMinutes(t, 0, 300)), SampledAt: w.now}
			check()
		},
		"extend": func(t *rapid.T) { grantExtension(t, w); check() },
		"pause": func(t *rapid.T) {
			w.observed.PausedUntil = w.now.Add(drawMinutes(t, 1, 24*60))
			check()
		},
		"resume": func(*rapid.T) {
			if w.now.Before(w.observed.PausedUntil) {
				w.observed.PausedUntil = w.now
			}
			check()
		},
	}
	t.Repeat(events)
}

// checkDecision decides, and checks the decision alone and against all before.
func checkDecision(t *rapid.T, w *simulation) {
	stopsBefore := len(w.stops)
	d := w.decide()
	if again := timelimit.Decide(w.now, d.Status, w.observed, w.limits); len(again.Warnings) > 0 || again.Stopped || !cmp.Equal(again.Status, d.Status) {
		t.Fatalf("the second call decides differently: %s", cmp.Diff(d.Status, again.Status))
	}
	if !d.NextDecision.IsZero() && !d.NextDecision.After(w.now) {
		t.Fatalf("the next decision is at %v, but now is %v", d.NextDecision, w.now)
	}
	if d.Status.Deadline != nil && d.Status.Deadline.Reason == v1alpha1.EndMaxRuntime && d.NextDecision.IsZero() {
		t.Fatal("there is a deadline, but no next decision")
	}
	if (w.limits.Exempt || w.limits.DryRun) && (len(d.Warnings) > 0 || d.Stopped) {
		t.Fatalf("a stop or warning in spite of exemption or dry run: %+v", d)
	}
	if len(w.stops) > stopsBefore && w.stops[len(w.stops)-1].Reason == v1alpha1.EndMaxRuntime {
		checkStopAnnounced(t, w)
	}
	checkPause(t, w, d, len(w.stops) > stopsBefore)
	checkNoDuplicateWarnings(t, w)
	if d.Status.AccumulatedSeconds < 0 || d.Status.RunningSince != nil && d.Status.RunningSince.After(w.now) {
		t.Fatalf("accumulated %d, running since %v", d.Status.AccumulatedSeconds, d.Status.RunningSince)
	}
	if len(d.Status.Leads) > 64 {
		t.Fatalf("%d warnings are recorded", len(d.Status.Leads))
	}
}

// checkPause checks that nothing is stopped in a pause, that what a pause held ends the shortest lead
// after it, and that no pause holds an end for longer.
func checkPause(t *rapid.T, w *simulation, d timelimit.Decision, stopped bool) {
	until, lead := w.observed.PausedUntil, slices.Min(w.limits.Leads)
	if w.now.Before(until) && (d.Stop || stopped) {
		t.Fatalf("stopped at %v, in a pause until %v", w.now, until)
	}
	if w.now.Before(until) && d.Status.Deadline != nil && d.NextDecision.IsZero() {
		t.Fatal("there is a held deadline, but no next decision")
	}
	if limit := d.Status.Limit; limit != nil && limit.HeldFrom != nil && w.observed.Running && d.Status.RunningSince != nil {
		bound := policytime.Later(w.now, until).Add(lead)
		if held := w.now.Add(remainingTime(d.Status, w.now)); held.After(bound) {
			t.Fatalf("held until %v, want at most %v", held, bound)
		}
	}
	if !stopped || until.IsZero() {
		return
	}
	if held := d.Status.Limit; held != nil && held.HeldFrom != nil && w.stops[len(w.stops)-1].Reason == v1alpha1.EndMaxRuntime && w.now.Before(until.Add(lead)) {
		t.Fatalf("a held workload was stopped at %v, %v after the pause, want %v", w.now, w.now.Sub(until), lead)
	}
}

// checkStopAnnounced checks that every stop at the limit was announced at least the shortest
// lead before, with that deadline or an earlier one, and that no warning came later.
func checkStopAnnounced(t *rapid.T, w *simulation) {
	shortest := slices.Min(w.limits.Leads)
	if !slices.ContainsFunc(w.warnings, func(s timedWarning) bool {
		return !s.Superseded && s.Reason == v1alpha1.EndMaxRuntime && !s.Deadline.After(w.now) && !s.at.Add(shortest).After(w.now)
	}) {
		t.Fatalf("stopped at %v without announcement; warnings: %v", w.now, w.warnings)
	}
	for _, s := range w.warnings {
		if s.Reason == v1alpha1.EndMaxRuntime && s.at.Add(shortest).After(w.now) {
			t.Fatalf("stopped at %v, %v after the last warning", w.now, w.now.Sub(s.at))
		}
	}
}

// checkNoDuplicateWarnings checks that no two warnings have the same reason, lead, limit and
// deadline.
func checkNoDuplicateWarnings(t *rapid.T, w *simulation) {
	warned := map[string]bool{}
	for _, s := range w.warnings {
		key := fmt.Sprint(s.Reason, s.Lead, s.DueAt, s.Deadline, s.LimitSeconds)
		if warned[key] {
			t.Fatalf("warned twice: %+v", s)
		}
		warned[key] = true
	}
}

// changeLimit changes the limit, and checks the remaining time.
func changeLimit(t *rapid.T, w *simulation) {
	before := w.decide()
	left := remainingTime(before.Status, w.now)
	w.limits.MaxRuntime = period.Duration{}
	if n := rapid.IntRange(0, 200).Draw(t, "limit in hours"); n > 0 {
		w.limits.MaxRuntime = period.MustParseDuration(strconv.Itoa(n) + "h")
	}
	after := w.decide()
	if before.Status.RunningSince == nil || after.Status.Deadline == nil || before.Status.AccumulatedSeconds == 0 && left == 0 {
		return
	}
	if before.Status.Limit != nil && before.Status.Limit.HeldFrom != nil {
		return // the pause, not the limit, gave the remaining time
	}
	floor := slices.Max(w.limits.Leads)
	if before.Status.Limit != nil {
		floor = min(floor, left)
	}
	if got := remainingTime(after.Status, w.now); after.Status.Limit != nil && got < floor {
		t.Fatalf("the changed limit leaves %v of %v, want at least %v", got, left, floor)
	}
}

func remainingTime(s v1alpha1.WorkloadClockStatus, now time.Time) time.Duration {
	if s.Limit == nil {
		return 0
	}
	ran := time.Duration(s.AccumulatedSeconds) * time.Second
	if s.RunningSince != nil {
		ran += now.Sub(s.RunningSince.Time)
	}
	return s.Limit.InForce.Length() - ran
}

// grantExtension grants an extension, and checks that it does not shorten the limit.
func grantExtension(t *rapid.T, w *simulation) {
	before := w.decide()
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "extension")
	w.limits.GrantedExtensions = []v1alpha1.ClockExtension{{Name: name, By: period.MustParseDuration("5h")}}
	after := w.decide()
	if before.Status.Limit != nil && before.Status.Limit.HeldFrom != nil {
		return // the longer end of both is in force: that of the pause, or that of the extension
	}
	if before.Status.Limit != nil && after.Status.Limit != nil && !after.Reset &&
		after.Status.Limit.InForce.Length() < before.Status.Limit.InForce.Length() {
		t.Fatalf("an extension changed the limit from %v to %v", before.Status.Limit.InForce, after.Status.Limit.InForce)
	}
}

func drawMinutes(t *rapid.T, least, most int) time.Duration {
	return time.Duration(rapid.IntRange(least, most).Draw(t, "minutes")) * time.Minute
}

// No workload is stopped at its limit without announcement, and a crash before a write
// repeats no warning.
func TestDecideInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newSimulation()
		if rapid.Bool().Draw(t, "idle limit") {
			w.limits.IdleTimeout = period.MustParseDuration("2h")
		}
		if rapid.Bool().Draw(t, "active") {
			w.limits.Clock = v1alpha1.ClockActive
		}
		runRandomEvents(t, w)
	})
}

// The number of calls while nothing changes does not affect the result.
func TestDecideIsIndependentOfCallFrequency(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seldom, often := newSimulation(), newSimulation()
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			span := drawMinutes(t, 1, 40*60)
			start := rapid.Bool().Draw(t, "start")
			for _, w := range []*simulation{seldom, often} {
				switch {
				case start == w.observed.Running:
				case start:
					w.startPods()
				default:
					w.endPods()
				}
			}
			seldom.advance(span)
			for end := often.now.Add(span); often.now.Before(end); {
				often.advance(min(end.Sub(often.now), drawMinutes(t, 1, 10*60)))
			}
		}
		if diff := cmp.Diff(seldom.status, often.status); diff != "" {
			t.Fatalf("(-seldom +often):\n%s", diff)
		}
		if diff := cmp.Diff(len(seldom.warnings), len(often.warnings)); diff != "" {
			t.Fatalf("warnings (-seldom +often):\n%s", diff)
		}
	})
}
