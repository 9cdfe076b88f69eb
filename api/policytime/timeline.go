// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policytime

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// MaxScale is the largest scale: one hour per second.
	MaxScale = 3600
	// MaxStep is the largest single step: ten years.
	MaxStep = 10 * 366 * 24 * time.Hour
	// MaxSegments limits the history of a timeline, and so its file.
	MaxSegments = 10000
)

// ErrInvalid is wrapped by every error about the contents of a timeline.
var ErrInvalid = errors.New("invalid policy time")

// Timeline maps real time to policy time in segments. Before the first segment both are the same.
// The zero value is real time.
type Timeline struct {
	// Segments are ordered by Real; at most [MaxSegments].
	Segments []Segment `json:"segments"`
}

// Segment is a time with a constant scale: from the real instant Real on, which is the policy
// time Policy, policy time runs Scale times as fast as real time.
type Segment struct {
	Real   time.Time `json:"real"`
	Policy time.Time `json:"policy"`
	// Scale is in policy seconds per real second, from 1 to [MaxScale].
	Scale float64 `json:"scale"`
}

// At returns the policy time of the real instant t.
func (l Timeline) At(t time.Time) time.Time {
	s := l.segmentAt(t)
	return s.Policy.Add(scaleDuration(t.Sub(s.Real), s.Scale)).UTC()
}

// RealUntil returns the real time between the real instant now and the policy time t, at the
// scale of now. It is zero if t has passed.
func (l Timeline) RealUntil(t, now time.Time) time.Duration {
	left := t.Sub(l.At(now))
	if left <= 0 {
		return 0
	}
	scale := l.Scale(now)
	if scale == 1 {
		return left
	}
	// Rounded up: waking too early would require a second wake-up.
	return scaleDuration(left, 1/scale) + time.Nanosecond
}

// Scale returns the scale at the real instant t.
func (l Timeline) Scale(t time.Time) float64 { return l.segmentAt(t).Scale }

// WithScale returns the timeline with another scale from the real instant now on. It fails for a
// scale outside 1 to [MaxScale], and if now is before the last change, so that past times do not
// change.
func (l Timeline) WithScale(scale float64, now time.Time) (Timeline, error) {
	if err := validateScale(scale); err != nil {
		return l, err
	}
	return l.append(Segment{Real: now, Policy: l.At(now), Scale: scale})
}

// WithStep returns the timeline with a step forward by d at the real instant now, with the same
// scale. d must be more than 0 and at most [MaxStep].
func (l Timeline) WithStep(d time.Duration, now time.Time) (Timeline, error) {
	if d <= 0 || d > MaxStep {
		return l, fmt.Errorf("%w: step %v: want more than 0 and at most %v", ErrInvalid, d, MaxStep)
	}
	return l.append(Segment{Real: now, Policy: l.At(now).Add(d), Scale: l.Scale(now)})
}

// Validate returns the first problem of a timeline that was read from a file.
func (l Timeline) Validate() error {
	if len(l.Segments) > MaxSegments {
		return fmt.Errorf("%w: segments: %d of them; at most %d are allowed", ErrInvalid, len(l.Segments), MaxSegments)
	}
	for i, s := range l.Segments {
		if err := validateScale(s.Scale); err != nil {
			return fmt.Errorf("segments[%d]: %w", i, err)
		}
		if s.Real.IsZero() || s.Policy.IsZero() {
			return fmt.Errorf("%w: segments[%d]: real and policy are both required", ErrInvalid, i)
		}
		before := Timeline{Segments: l.Segments[:i]}
		if i > 0 && s.Real.Before(l.Segments[i-1].Real) {
			return fmt.Errorf("%w: segments[%d].real: %v lies before the segment ahead of it", ErrInvalid, i, s.Real)
		}
		if at := before.At(s.Real); s.Policy.Before(at) {
			return fmt.Errorf("%w: segments[%d].policy: %v lies before %v, where policy time had got to", ErrInvalid, i, s.Policy, at)
		}
	}
	return nil
}

// hasPrefix reports whether l is before with only later changes added.
func (l Timeline) hasPrefix(before Timeline) bool {
	return len(l.Segments) >= len(before.Segments) &&
		slices.EqualFunc(l.Segments[:len(before.Segments)], before.Segments, func(a, b Segment) bool {
			return a.Real.Equal(b.Real) && a.Policy.Equal(b.Policy) && a.Scale == b.Scale
		})
}

func (l Timeline) append(s Segment) (Timeline, error) {
	if n := len(l.Segments); n > 0 && s.Real.Before(l.Segments[n-1].Real) {
		return l, fmt.Errorf("%w: the system clock (%v) stands before the last change of policy time (%v); set it right first",
			ErrInvalid, s.Real, l.Segments[n-1].Real)
	}
	if len(l.Segments) >= MaxSegments {
		return l, fmt.Errorf("%w: policy time has been changed %d times, which is the most it keeps", ErrInvalid, MaxSegments)
	}
	segments := make([]Segment, 0, len(l.Segments)+1)
	return Timeline{Segments: append(append(segments, l.Segments...), s)}, nil
}

func (l Timeline) segmentAt(t time.Time) Segment {
	for i := len(l.Segments) - 1; i >= 0; i-- {
		if !t.Before(l.Segments[i].Real) {
			return l.Segments[i]
		}
	}
	return Segment{Real: t, Policy: t, Scale: 1}
}

func validateScale(scale float64) error {
	if !(scale >= 1 && scale <= MaxScale) { // also rejects NaN
		return fmt.Errorf("%w: scale %v: want 1 to %d policy seconds per real second", ErrInvalid, scale, MaxScale)
	}
	return nil
}

// scaleDuration multiplies a duration. It loses no nanoseconds if the factor is one, and stops at
// the largest duration (292 years) instead of wrapping.
func scaleDuration(d time.Duration, by float64) time.Duration {
	if by == 1 {
		return d
	}
	product := float64(d) * by
	if product >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(product)
}
