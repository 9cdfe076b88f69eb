// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policytime

import (
	"time"
)

// Clock tells policy time. Implementations are safe for concurrent use.
type Clock interface {
	// Now is the present instant of policy time, in UTC.
	Now() time.Time

	// FromReal is the policy time at which the real instant t lies: what an
	// API object's timestamp, written in real time, means for a limit. It is
	// monotonic in t.
	FromReal(t time.Time) time.Time

	// RealUntil is how much real time passes before policy time reaches t at
	// the present scale: what a reconciler returns as RequeueAfter. It is
	// zero for an instant that has passed. A later step or change of pace of the
	// clock may make the instant come sooner.
	RealUntil(t time.Time) time.Duration
}

// System is policy time where it is real time: everywhere outside an embedded
// cluster.
func System() Clock { return systemClock{} }

type systemClock struct{}

// Now implements [Clock].
func (systemClock) Now() time.Time { return time.Now().UTC() }

// FromReal implements [Clock].
func (systemClock) FromReal(t time.Time) time.Time { return t.UTC() }

// RealUntil implements [Clock].
func (systemClock) RealUntil(t time.Time) time.Duration { return max(0, time.Until(t)) }

// MachineNow is the present instant of machine time: for time-outs, retries,
// leases, certificates, sampling, freshness and event times, never for a
// limit. It exists so that the choice of time is made by name; in the packages
// where both times occur the linter forbids [time.Now].
func MachineNow() time.Time { return time.Now() }

// FromTimestamp is the policy time of a real instant that was cut down to its second,
// as the API server's timestamps are. Where policy time was stepped within that
// second the instant is taken to lie after the step: nothing lasted for a step that
// may have begun with it.
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
