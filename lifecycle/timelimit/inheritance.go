// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"cmp"
	"time"

	"sluice.dev/api/v1alpha1"
)

// Successor is a new workload that can continue the clock of an earlier one.
type Successor struct {
	// Clock is the name of its clock.
	Clock string
	// Creator is the user who created it.
	Creator string
	// TemplateHash is the hash of its pod templates; empty if that is unknown.
	TemplateHash string
}

// ContinuesOwn reports whether a workload that was created again under its name keeps its
// clock. It does not if another user created it, if the earlier workload finished by itself,
// or if a third one continued the clock. A stop in force is kept in the last two cases.
func (n Successor) ContinuesOwn(clock *v1alpha1.WorkloadClock, now time.Time) bool {
	s := &clock.Status
	return clock.CountsFor(n.Creator) && (s.HasActiveStop(now) || s.CompletedAt == nil && s.Successor == "")
}

// ContinuesOther reports whether the workload continues the clock of a workload with another
// name, or the former clock of its own name, provided that Sluice stopped that workload or that
// it was deleted.
func (n Successor) ContinuesOther(clock *v1alpha1.WorkloadClock, resetAfter time.Duration, now time.Time) bool {
	isCopy := n.TemplateHash != "" && clock.Status.TemplateHash == n.TemplateHash
	if clock.Name == n.Clock || !isCopy && clock.Spec.Root.ClockName() != n.Clock || !clock.CountsFor(n.Creator) {
		return false
	}
	return CanContinue(&clock.Status, resetAfter, now) || clock.Status.Successor == n.Clock && canPassTimeOn(&clock.Status, resetAfter, now)
}

// CanContinue reports whether a later workload can continue a clock. Any number of workloads
// inherit a stop in force, but only one inherits the running time.
func CanContinue(s *v1alpha1.WorkloadClockStatus, resetAfter time.Duration, now time.Time) bool {
	return s.HasActiveStop(now) || s.Successor == "" && canPassTimeOn(s, resetAfter, now)
}

// canPassTimeOn reports whether a clock has running time of a workload that did not finish by
// itself, and that time has not been reset.
func canPassTimeOn(s *v1alpha1.WorkloadClockStatus, resetAfter time.Duration, now time.Time) bool {
	switch {
	case s.CompletedAt != nil:
		return false
	case s.RunningSince != nil: // its last pods terminate
		return true
	}
	at, ran := resetTime(s, resetAfter)
	return ran && now.Before(at.Truncate(time.Second))
}

// IsBetterPredecessor reports whether a successor of two clocks continues a, not b: the one
// with a stop in force, else the one with the longer running time.
func IsBetterPredecessor(a, b *v1alpha1.WorkloadClock, now time.Time) bool {
	if stopped := a.Status.HasActiveStop(now); stopped != b.Status.HasActiveStop(now) {
		return stopped
	}
	order := cmp.Compare(runningTimeOf(&a.Status, now), runningTimeOf(&b.Status, now))
	return cmp.Or(order, cmp.Compare(b.Name, a.Name)) > 0
}

// InheritStatus returns the first status of a workload that continues the clock of another.
// It keeps the running time until now, the warnings, the extensions and the stop, and drops
// what belongs to the old workload.
func InheritStatus(from *v1alpha1.WorkloadClock, creator string, now time.Time) v1alpha1.WorkloadClockStatus {
	to := FormerStatus(&from.Status, now)
	to.RootUID, to.CompletedAt, to.Successor = "", nil, ""
	to.InheritedFrom = InheritedFrom(&from.Status, creator)
	return to
}

// FormerStatus returns the status of a clock whose workload exists no longer. It ends the
// running interval now, and drops what belongs to the pods.
func FormerStatus(from *v1alpha1.WorkloadClockStatus, now time.Time) v1alpha1.WorkloadClockStatus {
	var to v1alpha1.WorkloadClockStatus
	from.DeepCopyInto(&to)
	if from.RunningSince != nil {
		to.AccumulatedSeconds = wholeSeconds(runningTimeOf(from, truncateToSecond(now)))
		to.PausedSince = metaTime(laterOf(now, from.RunningSince.Time))
	}
	to.RunningSince, to.StartingSince, to.Deadline, to.Local = nil, nil, nil, nil
	to.IdleSince, to.IdleUnknownSince, to.MissingSince, to.Conditions = nil, nil, nil, nil
	return to
}

// InheritedFrom returns the user whose running time a clock contains, other than its new
// creator. It is not the ServiceAccount that the user changed to in between.
func InheritedFrom(s *v1alpha1.WorkloadClockStatus, creator string) string {
	if user := cmp.Or(s.InheritedFrom, s.CreatedBy); user != creator {
		return user
	}
	return ""
}

// runningTimeOf returns the running time of a clock, including the open interval.
func runningTimeOf(s *v1alpha1.WorkloadClockStatus, now time.Time) time.Duration {
	ran := time.Duration(s.AccumulatedSeconds) * time.Second
	if s.RunningSince != nil {
		ran += max(0, now.Sub(s.RunningSince.Time))
	}
	return ran
}
