// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"sluice.dev/api/policytime"
)

// steppedClock is a policy time with one step.
type steppedClock struct {
	policytime.Clock
	at time.Time
	by time.Duration
}

func (c steppedClock) Timeline() policytime.Timeline {
	return policytime.Timeline{Segments: []policytime.Segment{{Real: c.at, Policy: c.at.Add(c.by), Scale: 1}}}
}

// A pod's start is known to the second. A step of policy time by ten hours within that second
// adds no running time.
func TestPolicyTimeStepIsNotCharged(t *testing.T) {
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
			r := &Reconciler{Clock: steppedClock{at: tc.stepped, by: step}}
			if got := r.toPolicyTime(started); !got.Equal(tc.want) {
				t.Errorf("the start is %s, want %s", got, tc.want)
			}
		})
	}
	if r := (&Reconciler{Clock: policytime.System()}); !r.toPolicyTime(started).Equal(started) {
		t.Errorf("in real time the start is %s, want %s", r.toPolicyTime(started), started)
	}
}
