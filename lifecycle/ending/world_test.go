// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending_test

import (
	"testing"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
)

var noon = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)

// world is a workload whose decisions are carried out at once.
type world struct {
	now    time.Time
	status v1alpha1.WorkloadClockStatus
	seen   ending.Seen
	terms  ending.Terms

	warnings []said
	stops    []said
	last     ending.Decision
}

// said is a warning or a stop, and when it was recorded.
type said struct {
	ending.Warning
	at time.Time
}

func students() *world {
	return &world{now: noon, terms: ending.Terms{
		Limits: v1alpha1.Limits{MaxRuntime: period.MustParseDuration("48h"), Clock: v1alpha1.ClockRunning, ResetAfter: period.MustParseDuration("1h")},
		Leads:  []time.Duration{24 * time.Hour, 4 * time.Hour, 30 * time.Minute},
	}}
}

// decide asks once, and records the answer.
func (w *world) decide() ending.Decision {
	d := ending.Decide(w.now, w.status, w.seen, w.terms)
	w.status, w.last = d.Status, d
	w.terms.Granted = nil
	for _, warning := range d.Warnings {
		w.warnings = append(w.warnings, said{warning, w.now})
	}
	if d.Stopped {
		w.stops = append(w.stops, said{ending.Warning{Reason: d.Status.Stopped.Reason}, w.now})
	}
	return d
}

// run lets time pass, asking whenever the last decision wanted to be asked.
func (w *world) run(span time.Duration) {
	end := w.now.Add(span)
	for d := w.decide(); !d.Next.IsZero() && !d.Next.After(end); d = w.decide() {
		w.now = d.Next
	}
	w.now = end
	w.decide()
}

// start has pods run from now on, and stops has them end.
func (w *world) start() {
	w.seen.Running, w.seen.Since = true, w.now
	w.decide()
}

func (w *world) end() {
	w.seen = ending.Seen{}
	w.decide()
}

func (w *world) sample(lastActive time.Time) {
	w.seen.Use = ending.Use{Known: true, LastActive: lastActive, SampledAt: w.now}
	w.decide()
}

func hours(t *testing.T, list []said) (at []string) {
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

var useUnknown = ending.Use{}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
