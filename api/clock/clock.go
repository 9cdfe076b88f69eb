// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clock

import "time"

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
func System() Clock { return system{} }

type system struct{}

// Now implements [Clock].
func (system) Now() time.Time { return time.Now().UTC() }

// FromReal implements [Clock].
func (system) FromReal(t time.Time) time.Time { return t.UTC() }

// RealUntil implements [Clock].
func (system) RealUntil(t time.Time) time.Duration { return max(0, time.Until(t)) }

// MachineNow is the present instant of machine time: for time-outs, retries,
// leases, certificates, sampling, freshness and event times, never for a
// limit. It exists so that the choice of time is made by name; in the packages
// where both times occur the linter forbids [time.Now].
func MachineNow() time.Time { return time.Now() }
