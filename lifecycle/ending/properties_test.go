// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
)

// history has something happen to a workload, and checks after each event what
// must always hold.
func history(t *rapid.T, w *world) {
	check := func() { checkDecision(t, w) }
	events := map[string]func(*rapid.T){
		"time":  func(t *rapid.T) { w.now = w.now.Add(minutes(t, 1, 60*60)); check() },
		"run":   func(t *rapid.T) { w.run(minutes(t, 1, 60*60)); check() },
		"start": func(*rapid.T) { w.seen.Running, w.seen.Since = true, w.now; check() },
		"end":   func(*rapid.T) { w.seen = ending.Seen{}; check() },
		"limit": func(t *rapid.T) { changeLimit(t, w); check() },
		"spare": func(t *rapid.T) { w.terms.Spared = rapid.Bool().Draw(t, "spared"); check() },
		"dry":   func(t *rapid.T) { w.terms.DryRun = rapid.Bool().Draw(t, "dry run"); check() },
		"sample": func(t *rapid.T) {
			known := rapid.Bool().Draw(t, "known")
			w.seen.Use = ending.Use{Known: known, LastActive: w.now.Add(-minutes(t, 0, 300)), SampledAt: w.now}
			check()
		},
		"extend": func(t *rapid.T) { extend(t, w); check() },
	}
	t.Repeat(events)
}

// checkDecision decides, and checks the answer alone and against all before.
func checkDecision(t *rapid.T, w *world) {
	stopsBefore := len(w.stops)
	d := w.decide()
	if again := ending.Decide(w.now, d.Status, w.seen, w.terms); len(again.Warnings) > 0 || again.Stopped || !cmp.Equal(again.Status, d.Status) {
		t.Fatalf("asked again it answers otherwise: %s", cmp.Diff(d.Status, again.Status))
	}
	if !d.Next.IsZero() && !d.Next.After(w.now) {
		t.Fatalf("asks to be asked at %v, and it is %v", d.Next, w.now)
	}
	if d.Status.Deadline != nil && d.Status.Deadline.Reason == v1alpha1.EndMaxRuntime && d.Next.IsZero() {
		t.Fatal("there is a deadline, and nobody will look")
	}
	if (w.terms.Spared || w.terms.DryRun) && (len(d.Warnings) > 0 || d.Stopped) {
		t.Fatalf("spared or in a dry run, and: %+v", d)
	}
	if len(w.stops) > stopsBefore && w.stops[len(w.stops)-1].Reason == v1alpha1.EndMaxRuntime {
		checkAnnounced(t, w)
	}
	checkOnce(t, w)
	if d.Status.AccumulatedSeconds < 0 || d.Status.RunningSince != nil && d.Status.RunningSince.After(w.now) {
		t.Fatalf("accumulated %d, running since %v", d.Status.AccumulatedSeconds, d.Status.RunningSince)
	}
	if len(d.Status.Leads) > 64 {
		t.Fatalf("%d warnings are kept", len(d.Status.Leads))
	}
}

// checkAnnounced: no end at the limit before a warning of that end, or of an
// earlier one, stood for the shortest lead.
func checkAnnounced(t *rapid.T, w *world) {
	shortest := slices.Min(w.terms.Leads)
	if !slices.ContainsFunc(w.warnings, func(s said) bool {
		return !s.Superseded && s.Reason == v1alpha1.EndMaxRuntime && !s.Deadline.After(w.now) && !s.at.Add(shortest).After(w.now)
	}) {
		t.Fatalf("stopped at %v unannounced; warnings were %v", w.now, w.warnings)
	}
}

// checkOnce: no two warnings of one reason, lead, limit and end.
func checkOnce(t *rapid.T, w *world) {
	seen := map[string]bool{}
	for _, s := range w.warnings {
		key := fmt.Sprint(s.Reason, s.Lead, s.DueAt, s.Deadline, s.LimitSeconds)
		if seen[key] {
			t.Fatalf("warned twice: %+v", s)
		}
		seen[key] = true
	}
}

// changeLimit changes the limit, and checks what is left.
func changeLimit(t *rapid.T, w *world) {
	before := w.decide()
	left := remaining(before.Status, w.now)
	w.terms.MaxRuntime = period.Duration{}
	if n := rapid.IntRange(0, 200).Draw(t, "limit in hours"); n > 0 {
		w.terms.MaxRuntime = period.MustParseDuration(strconv.Itoa(n) + "h")
	}
	after := w.decide()
	if before.Status.RunningSince == nil || after.Status.Deadline == nil || before.Status.AccumulatedSeconds == 0 && left == 0 {
		return
	}
	floor := slices.Max(w.terms.Leads)
	if before.Status.Limit != nil {
		floor = min(floor, left)
	}
	if got := remaining(after.Status, w.now); after.Status.Limit != nil && got < floor {
		t.Fatalf("a changed limit leaves %v of %v; at least %v", got, left, floor)
	}
}

func remaining(s v1alpha1.WorkloadClockStatus, now time.Time) time.Duration {
	if s.Limit == nil {
		return 0
	}
	ran := time.Duration(s.AccumulatedSeconds) * time.Second
	if s.RunningSince != nil {
		ran += now.Sub(s.RunningSince.Time)
	}
	return s.Limit.InForce.Length() - ran
}

// extend grants more time, and checks that the end does not come sooner.
func extend(t *rapid.T, w *world) {
	before := w.decide()
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "extension")
	w.terms.Granted = []v1alpha1.ClockExtension{{Name: name, By: period.MustParseDuration("5h")}}
	after := w.decide()
	if before.Status.Limit != nil && after.Status.Limit != nil && !after.Reset &&
		after.Status.Limit.InForce.Length() < before.Status.Limit.InForce.Length() {
		t.Fatalf("an extension took %v to %v", before.Status.Limit.InForce, after.Status.Limit.InForce)
	}
}

func minutes(t *rapid.T, least, most int) time.Duration {
	return time.Duration(rapid.IntRange(least, most).Draw(t, "minutes")) * time.Minute
}

// It guards that no workload ends at its limit unannounced, and that a crash
// before a record repeats nothing.
func TestDecideKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := students()
		if rapid.Bool().Draw(t, "idle limit") {
			w.terms.IdleTimeout = period.MustParseDuration("2h")
		}
		if rapid.Bool().Draw(t, "active") {
			w.terms.Clock = v1alpha1.ClockActive
		}
		history(t, w)
	})
}

// However often it is asked while nothing happens, the outcome is the same.
func TestBeingAskedMoreOftenChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seldom, often := students(), students()
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			span := minutes(t, 1, 40*60)
			start := rapid.Bool().Draw(t, "start")
			for _, w := range []*world{seldom, often} {
				switch {
				case start == w.seen.Running:
				case start:
					w.start()
				default:
					w.end()
				}
			}
			seldom.run(span)
			for end := often.now.Add(span); often.now.Before(end); {
				often.run(min(end.Sub(often.now), minutes(t, 1, 10*60)))
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
