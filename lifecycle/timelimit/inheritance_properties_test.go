// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

// neighbor is one of several workloads with the same program and creator.
type neighbor struct {
	clock *v1alpha1.WorkloadClock
	// startedAt is its first start, ran its own running time, both without other workloads.
	startedAt time.Time
	ran       time.Duration
	running   bool
	// paused is true if its user paused it, false if its pod is replaced.
	paused   bool
	startsAt time.Time
}

// Protects invariant 12 of the design and the time limit: of workloads with one program that ran beside
// each other for hours, none has more time than since its own start, and none less than its own. Their
// pods are replaced, and their user pauses and resumes them, each for less than resetAfter.
func TestNeighborsKeepTheirTime(t *testing.T) {
	const step, reset = 10 * time.Minute, time.Hour
	limits := timelimit.EffectiveLimits{}
	limits.ResetAfter = period.MustParseDuration("1h")
	rapid.Check(t, func(t *rapid.T) {
		now, neighbors := inheritanceTime, []*neighbor{}
		advance := func() {
			now = now.Add(step)
			for _, w := range neighbors {
				if w.running {
					w.ran += step
				}
				reconcileNeighbor(w, neighbors, limits, reset, now)
			}
		}
		for i := range rapid.IntRange(2, 3).Draw(t, "workloads") {
			w := &neighbor{clock: newEndedClock(), startedAt: now, running: true}
			w.clock.Status = v1alpha1.WorkloadClockStatus{TemplateHash: "same", CreatedBy: alice}
			w.clock.Spec.Root.Name = fmt.Sprint("work-", i)
			w.clock.Name = w.clock.Spec.Root.ClockName()
			neighbors = append(neighbors, w)
			reconcileNeighbor(w, neighbors, limits, reset, now)
			for range rapid.IntRange(7, 20).Draw(t, "steps together") {
				advance()
			}
		}
		for range 60 {
			for _, w := range neighbors {
				switch event := rapid.IntRange(0, 9).Draw(t, "event"); {
				case w.running && event < 2:
					w.running, w.paused = false, event == 0
					w.startsAt = now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "steps stopped")) * step)
				case !w.running && !now.Before(w.startsAt):
					w.running, w.paused = true, false
				}
				reconcileNeighbor(w, neighbors, limits, reset, now)
			}
			advance()
			for i, w := range neighbors {
				s := &w.clock.Status
				has := time.Duration(s.AccumulatedSeconds) * time.Second
				if s.RunningSince != nil {
					has += now.Sub(s.RunningSince.Time)
				}
				if most := now.Sub(w.startedAt); has < w.ran || has > most {
					t.Fatalf("workload %d ran for %s of the %s since its start, and its clock has %s", i, w.ran, most, has)
				}
			}
		}
	})
}

// reconcileNeighbor continues the clock of another workload as the controller does, and decides.
func reconcileNeighbor(w *neighbor, all []*neighbor, limits timelimit.EffectiveLimits, reset time.Duration, now time.Time) {
	s := &w.clock.Status
	successor := timelimit.Successor{Clock: w.clock.Name, Creator: alice, TemplateHash: "same", Own: s}
	if w.running && s.State != "" {
		var candidates []*v1alpha1.WorkloadClock
		for _, other := range all {
			if other.paused && successor.ContinuesOther(other.clock, reset, now) {
				candidates = append(candidates, other.clock)
			}
		}
		slices.SortFunc(candidates, func(a, b *v1alpha1.WorkloadClock) int { return timelimit.ComparePredecessors(a, b, now) })
		if len(candidates) > 0 {
			candidates[0].Status.Successor = w.clock.Name
			*s = timelimit.ContinueStatus(s, candidates[0], now)
		}
	}
	observed := timelimit.Observation{Running: w.running, HasPods: w.running}
	if w.running {
		observed.RunningSince = now
	}
	*s = timelimit.Decide(now, *s, observed, limits).Status
}
