// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clock_test

import (
	"testing"
	"time"

	"sluice.dev/api/clock"
)

// timeline is policy time by one, at a real instant that stands still.
type timeline struct {
	clock.Clock
	of clock.Timeline
}

func (t timeline) Timeline() clock.Timeline { return t.of }

func TestFromSecondIsAfterAStepWithinTheSecond(t *testing.T) {
	noon := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	stepped, err := clock.Timeline{}.Advanced(month, noon.Add(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	short, err := clock.Timeline{}.Advanced(time.Minute, noon.Add(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	again, err := stepped.Advanced(time.Minute, noon.Add(700*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	fast, err := clock.Timeline{}.WithScale(clock.MaxScale, noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		of       clock.Timeline
		at, want time.Time
	}{
		"the second of the step":  {stepped, noon, noon.Add(month)},
		"one step after another":  {again, noon, noon.Add(month + time.Minute)},
		"a step of a minute":      {short, noon, noon.Add(time.Minute)},
		"the second before":       {stepped, noon.Add(-time.Second), noon.Add(-time.Second)},
		"the second after":        {stepped, noon.Add(time.Second), noon.Add(month + time.Second)},
		"without a step":          {clock.Timeline{}, noon, noon},
		"when the pace changes":   {fast, noon, noon},
		"policy time at its pace": {fast, noon.Add(time.Second), noon.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := clock.FromSecond(timeline{of: tc.of}, tc.at); !got.Equal(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
