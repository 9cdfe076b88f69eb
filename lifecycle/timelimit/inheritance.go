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
// name, provided that Sluice stopped that one or that it was deleted. Any number of
// workloads inherit a stop in force, but only one inherits the running time.
func (n Successor) ContinuesOther(clock *v1alpha1.WorkloadClock, resetAfter time.Duration, now time.Time) bool {
	s := &clock.Status
	switch {
	case clock.Name == n.Clock || n.TemplateHash == "" || s.TemplateHash != n.TemplateHash || !clock.CountsFor(n.Creator):
		return false
	case s.HasActiveStop(now):
		return true
	case s.CompletedAt != nil || s.Successor != "" && s.Successor != n.Clock:
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
// what belongs to the old pods.
func InheritStatus(from *v1alpha1.WorkloadClock, creator string, now time.Time) v1alpha1.WorkloadClockStatus {
	var to v1alpha1.WorkloadClockStatus
	from.Status.DeepCopyInto(&to)
	if from.Status.RunningSince != nil {
		to.AccumulatedSeconds = wholeSeconds(runningTimeOf(&from.Status, truncateToSecond(now)))
		to.PausedSince = metaTime(laterOf(now, from.Status.RunningSince.Time))
	}
	to.RootUID, to.RunningSince, to.Deadline, to.Local = "", nil, nil, nil
	to.IdleSince, to.IdleUnknownSince, to.Conditions = nil, nil, nil
	to.CompletedAt, to.Successor, to.MissingSince = nil, "", nil
	to.InheritedFrom = InheritedFrom(&from.Status, creator)
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
