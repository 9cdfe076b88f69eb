// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policytime_test

import (
	"testing"
	"time"

	"sluice.dev/api/policytime"
)

// fixedTimeline is policy time by one, at a real instant that stands still.
type fixedTimeline struct {
	policytime.Clock
	fixed policytime.Timeline
}

func (t fixedTimeline) Timeline() policytime.Timeline { return t.fixed }

func TestFromTimestampIsAfterStepWithinSecond(t *testing.T) {
	noon := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	stepped, err := policytime.Timeline{}.WithStep(month, noon.Add(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	short, err := policytime.Timeline{}.WithStep(time.Minute, noon.Add(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	again, err := stepped.WithStep(time.Minute, noon.Add(700*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	fast, err := policytime.Timeline{}.WithScale(policytime.MaxScale, noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		of       policytime.Timeline
		at, want time.Time
	}{
		"the second of the step":  {stepped, noon, noon.Add(month)},
		"one step after another":  {again, noon, noon.Add(month + time.Minute)},
		"a step of a minute":      {short, noon, noon.Add(time.Minute)},
		"the second before":       {stepped, noon.Add(-time.Second), noon.Add(-time.Second)},
		"the second after":        {stepped, noon.Add(time.Second), noon.Add(month + time.Second)},
		"without a step":          {policytime.Timeline{}, noon, noon},
		"when the pace changes":   {fast, noon, noon},
		"policy time at its pace": {fast, noon.Add(time.Second), noon.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := policytime.FromTimestamp(fixedTimeline{fixed: tc.of}, tc.at); !got.Equal(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
