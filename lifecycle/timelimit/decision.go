// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Decide is what follows, at an instant, from what was recorded, what is seen and
// what holds. The same question has the same answer; asked again with its own
// answer as the record, it warns of nothing twice.
func Decide(now time.Time, was v1alpha1.WorkloadClockStatus, seen Observation, terms EffectiveLimits) Decision {
	d := &decision{now: truncateToSecond(now), previous: &was, observed: seen, limits: terms}
	was.DeepCopyInto(&d.Status)
	d.recordExtensions()
	d.releaseStop()
	d.recordPause()
	d.resetClock()
	d.updateRunningTime()
	d.resetClock()
	d.determineLimit()
	d.updateIdleTime()
	d.announceDeadlines()
	d.enforceDeadline()
	d.evaluateDryRun()
	d.setState()
	return d.Decision
}

// decision is a decision on its way. Its steps are in the order in which Decide
// takes them.
type decision struct {
	Decision
	now      time.Time
	previous *v1alpha1.WorkloadClockStatus
	observed Observation
	limits   EffectiveLimits
	// intervalOpened tells that an interval was opened by this decision.
	intervalOpened bool
	// idleDuration is how long the workload has been idle, as far as is known.
	idleDuration time.Duration
}

// runningTime is the accumulated running time, the open interval included.
func (d *decision) runningTime() time.Duration {
	ran := time.Duration(d.Status.AccumulatedSeconds) * time.Second
	if since := d.Status.RunningSince; since != nil {
		ran += max(0, d.now.Sub(since.Time))
	}
	return ran
}

// scheduleNext has the decision asked again at an instant, unless that is earlier anyway.
func (d *decision) scheduleNext(t time.Time) {
	if t.After(d.now) && (d.NextDecision.IsZero() || t.Before(d.NextDecision)) {
		d.NextDecision = t
	}
}

// setState names what was decided.
func (d *decision) setState() {
	switch {
	case d.Status.Stopped != nil:
		d.Status.State = v1alpha1.ClockStateStopped
	case d.Status.RunningSince != nil:
		d.Status.State = v1alpha1.ClockStateRunning
	case d.Status.AccumulatedSeconds > 0 || d.Status.PausedSince != nil:
		d.Status.State = v1alpha1.ClockStatePaused
	default:
		d.Status.State = v1alpha1.ClockStatePending
	}
}

// truncateToSecond is an instant as it can be recorded.
func truncateToSecond(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

func metaTime(t time.Time) *metav1.Time { return &metav1.Time{Time: truncateToSecond(t)} }

func wholeSeconds(length time.Duration) int64 { return int64(length / time.Second) }

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Decision is what follows from a question. Whoever carries it out records the
// warnings first, then the status, and stops the workload last: all three may be
// done twice, and none may be left out because of a crash before.
type Decision struct {
	// Status is what is to be recorded; conditions and what is shown are left as they
	// were.
	Status v1alpha1.WorkloadClockStatus
	// Warnings are to be recorded as Notices.
	Warnings []Warning
	// Stop tells that the workload is to be stopped, as Status.Stopped says.
	Stop bool
	// Stopped tells that Status.Stopped is new with this decision.
	Stopped bool
	// Released tells that a stop no longer holds: its mark is to be taken from the
	// workload.
	Released bool
	// Reset tells that the workload's time begins anew.
	Reset bool
	// WouldStop tells that a dry run keeps the workload from being stopped, and why.
	WouldStop v1alpha1.EndReason
	// NextDecision is when to ask again if nothing is seen before; zero is never.
	NextDecision time.Time
}

// Warning is one message to a workload's people that it will end.
type Warning struct {
	// Reason is why it will: MaxRuntime or Idle.
	Reason v1alpha1.EndReason
	// Lead is how long before the end the warning was due.
	Lead time.Duration
	// DueAt is when it was due.
	DueAt time.Time
	// Deadline is when it ends.
	Deadline time.Time
	// LimitSeconds is the limit in accumulated running time, for MaxRuntime.
	LimitSeconds int64
	// Superseded is true where a warning given at the same time says all that this
	// one would have said.
	Superseded bool
}

// EffectiveLimits are what holds for a workload.
type EffectiveLimits struct {
	// Limits are those of its type in its project; MaxRuntime is the shorter of that
	// and what its pods ask for themselves.
	v1alpha1.Limits
	// Leads are how long before the end its people are warned. There is at least one.
	Leads []time.Duration
	// Exempt is true where the project is exempt or held: nothing ends.
	Exempt bool
	// GrantedExtensions are the extensions that were approved and not recorded yet.
	GrantedExtensions []v1alpha1.ClockExtension
}

// Observation is what is known of a workload now.
type Observation struct {
	// Running is true while at least one GPU pod of it runs.
	Running bool
	// RunningSince is when the first of the pods that run now began, or its namespace was
	// governed, whichever is later. Zero is the instant of the decision.
	RunningSince time.Time
	// Utilization is how its GPUs are used.
	Utilization Utilization
}

// Utilization is the use of a workload's GPUs.
type Utilization struct {
	// Known is false where a node of its pods gave no fresh sample, or cannot tell.
	Known bool
	// LastActive is the latest use by any of its pods.
	LastActive time.Time
	// SampledAt is the oldest of its nodes' samples: idleness counts up to here.
	SampledAt time.Time
}

// hasRuntimeLimit tells whether anything may be stopped by a limit on running time.
func (t *EffectiveLimits) hasRuntimeLimit() bool {
	return !t.Exempt && !t.DryRun && !t.MaxRuntime.IsZero()
}

// hasIdleTimeout tells whether anything may be stopped for want of use.
func (t *EffectiveLimits) hasIdleTimeout() bool {
	return !t.Exempt && !t.DryRun && !t.IdleTimeout.IsZero()
}

func (t *EffectiveLimits) longestLead() time.Duration  { return slices.Max(t.Leads) }
func (t *EffectiveLimits) shortestLead() time.Duration { return slices.Min(t.Leads) }
