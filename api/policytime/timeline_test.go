// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policytime_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice.dev/api/policytime"
)

var epoch = time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)

func mustTimeline(t *testing.T) func(policytime.Timeline, error) policytime.Timeline {
	return func(l policytime.Timeline, err error) policytime.Timeline {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func TestTimelineAt(t *testing.T) {
	ok := mustTimeline(t)
	plain := policytime.Timeline{}
	fast := ok(plain.WithScale(60, epoch))
	stepped := ok(plain.WithStep(30*24*time.Hour, epoch))
	fastThenStepped := ok(fast.WithStep(time.Hour, epoch.Add(time.Minute)))

	tests := map[string]struct {
		timeline policytime.Timeline
		at, want time.Time
	}{
		"real time throughout":                 {plain, epoch, epoch},
		"scaled, before the change":            {fast, epoch.Add(-time.Hour), epoch.Add(-time.Hour)},
		"scaled, at the change":                {fast, epoch, epoch},
		"scaled, a real minute is an hour":     {fast, epoch.Add(time.Minute), epoch.Add(time.Hour)},
		"stepped, just before":                 {stepped, epoch.Add(-1), epoch.Add(-1)},
		"stepped, at the step":                 {stepped, epoch, epoch.Add(30 * 24 * time.Hour)},
		"stepped, a second later":              {stepped, epoch.Add(time.Second), epoch.Add(30*24*time.Hour + time.Second)},
		"scaled, then stepped: keeps its pace": {fastThenStepped, epoch.Add(2 * time.Minute), epoch.Add(3 * time.Hour)},
		"scaled, then stepped: history stays":  {fastThenStepped, epoch.Add(30 * time.Second), epoch.Add(30 * time.Minute)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.timeline.At(tc.at); !got.Equal(tc.want) {
				t.Errorf("At(%v) = %v, want %v", tc.at, got, tc.want)
			}
		})
	}
}

func TestTimelineRealUntil(t *testing.T) {
	ok := mustTimeline(t)
	fast := ok(policytime.Timeline{}.WithScale(3600, epoch))
	tests := map[string]struct {
		timeline policytime.Timeline
		until    time.Time
		want     time.Duration
	}{
		"real time":             {policytime.Timeline{}, epoch.Add(48 * time.Hour), 48 * time.Hour},
		"passed":                {policytime.Timeline{}, epoch.Add(-time.Hour), 0},
		"now":                   {policytime.Timeline{}, epoch, 0},
		"an hour a second":      {fast, epoch.Add(48 * time.Hour), 48*time.Second + 1},
		"passed, an hour a sec": {fast, epoch.Add(-time.Hour), 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.timeline.RealUntil(tc.until, epoch); got != tc.want {
				t.Errorf("RealUntil = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestTimelineRejectsChangesToThePast(t *testing.T) {
	ok := mustTimeline(t)
	base := ok(policytime.Timeline{}.WithStep(time.Hour, epoch))
	tests := map[string]func() (policytime.Timeline, error){
		"a step back":          func() (policytime.Timeline, error) { return base.WithStep(-time.Hour, epoch) },
		"no step":              func() (policytime.Timeline, error) { return base.WithStep(0, epoch) },
		"a step beyond bounds": func() (policytime.Timeline, error) { return base.WithStep(policytime.MaxStep+1, epoch) },
		"scale 0":              func() (policytime.Timeline, error) { return base.WithScale(0, epoch) },
		"scale 3601":           func() (policytime.Timeline, error) { return base.WithScale(3601, epoch) },
		"scale NaN":            func() (policytime.Timeline, error) { return base.WithScale(math.NaN(), epoch) },
		"system clock set back": func() (policytime.Timeline, error) {
			return base.WithStep(time.Hour, epoch.Add(-time.Minute))
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := change()
			if !errors.Is(err, policytime.ErrInvalid) {
				t.Fatalf("err = %v, want ErrInvalid", err)
			}
			if !got.At(epoch).Equal(base.At(epoch)) {
				t.Error("the timeline changed although it was refused")
			}
		})
	}
}

// After any history of steps and scales policy time is monotonic, past times are unchanged, and
// RealUntil ends at the instant or just after it.
func TestTimelineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l policytime.Timeline
		now := epoch
		for range rapid.IntRange(0, 12).Draw(t, "changes") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "wait")))
			before, probe := l, now.Add(-time.Nanosecond)
			var err error
			if rapid.Bool().Draw(t, "step") {
				l, err = l.WithStep(time.Duration(rapid.Int64Range(1, int64(400*24*time.Hour)).Draw(t, "by")), now)
			} else {
				l, err = l.WithScale(float64(rapid.IntRange(1, policytime.MaxScale).Draw(t, "scale")), now)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !l.At(probe).Equal(before.At(probe)) {
				t.Fatalf("the past changed: %v, was %v", l.At(probe), before.At(probe))
			}
		}
		if err := l.Validate(); err != nil {
			t.Fatalf("made invalid: %v", err)
		}
		a := epoch.Add(time.Duration(rapid.Int64Range(0, int64(20*24*time.Hour)).Draw(t, "a")))
		b := a.Add(time.Duration(rapid.Int64Range(0, int64(20*24*time.Hour)).Draw(t, "b")))
		if l.At(b).Before(l.At(a)) {
			t.Fatalf("policy time ran backwards between %v and %v", a, b)
		}
		target := l.At(now).Add(time.Duration(rapid.Int64Range(1, int64(1000*24*time.Hour)).Draw(t, "ahead")))
		woken := l.At(now.Add(l.RealUntil(target, now)))
		// A double has 53 bits: over 1000 days that is a grain of 10 ns a scale step.
		if late := woken.Sub(target); late < -100*time.Microsecond || late > 100*time.Microsecond {
			t.Fatalf("woke %v off the target", late)
		}
	})
}

func FuzzParseTimeline(f *testing.F) {
	f.Add([]byte(`{"segments":[]}`))
	f.Add([]byte(`{"segments":[{"real":"2026-03-28T12:00:00Z","policy":"2026-04-28T12:00:00Z","scale":60}]}`))
	f.Add([]byte(`{"segments":[{"real":"2026-03-28T12:00:00Z","policy":"2020-04-28T12:00:00Z","scale":1e9}]}`))
	f.Add([]byte(`{"segmente":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := policytime.ParseTimeline(raw)
		if err != nil {
			if !errors.Is(err, policytime.ErrInvalid) {
				t.Fatalf("err = %v does not wrap ErrInvalid", err)
			}
			return
		}
		if l.At(epoch.Add(time.Hour)).Before(l.At(epoch)) {
			t.Fatalf("accepted a timeline that runs backwards: %s", raw)
		}
	})
}
