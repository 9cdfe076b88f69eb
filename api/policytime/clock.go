// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policytime

import (
	"time"
)

// Clock returns policy time. Implementations are safe for concurrent use.
type Clock interface {
	// Now returns the current policy time in UTC.
	Now() time.Time

	// FromReal returns the policy time of the real instant t, such as the timestamp of an API
	// object. It is monotonic in t.
	FromReal(t time.Time) time.Time

	// RealUntil returns the real time until policy time reaches t at the current scale, for
	// use as RequeueAfter. It is zero if t has passed. A later step or a higher scale makes
	// the instant come sooner.
	RealUntil(t time.Time) time.Duration
}

// System returns a clock whose policy time is real time, as everywhere outside an embedded
// cluster.
func System() Clock { return systemClock{} }

type systemClock struct{}

// Now implements [Clock].
func (systemClock) Now() time.Time { return time.Now().UTC() }

// FromReal implements [Clock].
func (systemClock) FromReal(t time.Time) time.Time { return t.UTC() }

// RealUntil implements [Clock].
func (systemClock) RealUntil(t time.Time) time.Duration { return max(0, time.Until(t)) }

// MachineNow returns the current machine time: for timeouts, retries, leases, certificates,
// sampling, freshness and event times, never for a limit. Its name makes the choice of time
// explicit; the linter forbids [time.Now] in packages that use both times.
func MachineNow() time.Time { return time.Now() }

// Later returns the later one of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// FromTimestamp returns the policy time of a real instant that was truncated to the second, like
// timestamps of the API server. If policy time was stepped within that second, the result is
// after the step, so that the step does not count as running time.
func FromTimestamp(c Clock, t time.Time) time.Time {
	of, ok := c.(interface{ Timeline() Timeline })
	if !ok {
		return c.FromReal(t)
	}
	l := of.Timeline()
	at := l.At(t)
	for i, s := range l.Segments {
		if !s.Real.After(t) || s.Real.After(t.Add(time.Second)) {
			continue
		}
		if before := (Timeline{Segments: l.Segments[:i]}).At(s.Real); s.Policy.After(before) {
			at = s.Policy.Add(t.Sub(s.Real))
		}
	}
	return at.UTC()
}
