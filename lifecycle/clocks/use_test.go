// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"testing"
	"time"

	"sluice.dev/api/clock"
)

// onceStepped is policy time that was stepped once.
type onceStepped struct {
	clock.Clock
	at time.Time
	by time.Duration
}

func (c onceStepped) Timeline() clock.Timeline {
	return clock.Timeline{Segments: []clock.Segment{{Real: c.at, Policy: c.at.Add(c.by), Scale: 1}}}
}

// A pod's start is known to the second. Whoever steps policy time by ten hours in
// that second has not given it ten hours of running.
func TestNobodyIsChargedForAStep(t *testing.T) {
	started := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const step = 10 * time.Hour
	for name, tc := range map[string]struct{ stepped, want time.Time }{
		"long before":            {started.Add(-time.Hour), started.Add(step)},
		"in the second before":   {started.Add(-time.Millisecond), started.Add(step)},
		"in its first instant":   {started, started.Add(step)},
		"in the same second":     {started.Add(500 * time.Millisecond), started.Add(step)},
		"when that second ended": {started.Add(time.Second), started.Add(step)},
		"after it":               {started.Add(time.Second + time.Nanosecond), started},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Clock: onceStepped{at: tc.stepped, by: step}}
			if got := r.notBefore(started); !got.Equal(tc.want) {
				t.Errorf("it began at %s, want %s", got, tc.want)
			}
		})
	}
	if r := (&Reconciler{Clock: clock.System()}); !r.notBefore(started).Equal(started) {
		t.Errorf("in real time it began at %s, want %s", r.notBefore(started), started)
	}
}
