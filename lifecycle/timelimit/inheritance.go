// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"cmp"
	"slices"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// Successor is a workload that starts and can continue the clock of an earlier one.
type Successor struct {
	// Clock is the name of its clock.
	Clock string
	// Creator is the user who created it.
	Creator string
	// TemplateHash is the hash of its pod templates; empty if that is unknown.
	TemplateHash string
	// Own is the status of its clock, if it ran before; nil for a new workload.
	Own *v1alpha1.WorkloadClockStatus
	// Earlier is the status of an earlier workload of the same creator and name, whose clock it
	// does not keep; nil if there is none.
	Earlier *v1alpha1.WorkloadClockStatus
}

// ContinuesOwn reports whether a workload that was created again under its name keeps its
// clock. It does not if another user created it, if the earlier workload finished by itself,
// or if a third one continued the clock. A stop in force is kept in the last two cases.
func (n Successor) ContinuesOwn(clock *v1alpha1.WorkloadClock, now time.Time) bool {
	s := &clock.Status
	return clock.CountsFor(n.Creator) && (s.HasActiveStop(now) || s.CompletedAt == nil && s.Successor == "")
}

// ContinuesOther reports whether the workload continues the clock of a workload with another
// name, or the former clock of its own name, provided that Sluice stopped that workload, that it
// was deleted, or that its user paused it. A workload that ran before continues only a clock that
// ran when it did not: workloads that ran at the same time have their own clocks. A workload
// that runs continues only the clock of one that its user paused soon after its start.
func (n Successor) ContinuesOther(clock *v1alpha1.WorkloadClock, resetAfter time.Duration, now time.Time) bool {
	isCopy := n.TemplateHash != "" && clock.Status.TemplateHash == n.TemplateHash
	if clock.Name == n.Clock || !isCopy && clock.Spec.Root.ClockName() != n.Clock || !clock.CountsFor(n.Creator) {
		return false
	}
	if n.Own != nil && !clock.Status.HasActiveStop(now) && !n.isApartFrom(&clock.Status, resetAfter, now) {
		return false
	}
	if n.IsRunning() {
		return n.followsAfterOverlap(clock, resetAfter) && canPassTimeOn(&clock.Status, resetAfter, now)
	}
	if n.Own != nil && !clock.RanAfter(n.Own) && !n.beganBeforePause(&clock.Status, resetAfter) {
		return false
	}
	if CanContinue(&clock.Status, resetAfter, now) {
		return true
	}
	// It was recorded as the successor before a crash, unless that was the earlier workload.
	return clock.Status.Successor == n.Clock && !n.hasEarlierContinued(clock) && canPassTimeOn(&clock.Status, resetAfter, now)
}

// followsAfterOverlap reports whether the running workload took over from that of the clock, although
// both ran for a moment: the other began before and was paused within resetAfter, and ran for longer
// than this one knows. Workloads that run together for longer have their own clocks.
func (n Successor) followsAfterOverlap(clock *v1alpha1.WorkloadClock, resetAfter time.Duration) bool {
	s := &clock.Status
	if s.RunningSince != nil || s.PausedSince == nil || s.LastRunningSince == nil || s.Stopped != nil ||
		s.Successor != "" && s.Successor != n.Clock {
		return false
	}
	both := overlap(n.Own, s)
	return s.LastRunningSince.Before(n.Own.RunningSince) && both >= 0 && both < resetAfter &&
		s.AccumulatedSeconds-wholeSeconds(both) > n.Own.AccumulatedSeconds
}

// isApartFrom reports whether the time of a clock does not overlap with that of the workload, which ran
// before: it ran at most for as long as the time since the workload's start. Otherwise a part of it is
// time in which both ran, or from before. A workload that started soon before the other's pause did so
// for a moment only.
func (n Successor) isApartFrom(s *v1alpha1.WorkloadClockStatus, resetAfter time.Duration, now time.Time) bool {
	if n.Own.StartedAt == nil || n.beganBeforePause(s, resetAfter) {
		return true
	}
	return fitsSinceStart(n.Own, s, runningTimeOf(s, now)-max(0, overlap(n.Own, s)), now)
}

// fitsSinceStart reports whether the time of another workload is at most the time from a workload's start
// to its last one, or to the other's pause if it does not run.
func fitsSinceStart(own, other *v1alpha1.WorkloadClockStatus, ran time.Duration, now time.Time) bool {
	end := cmp.Or(own.RunningSince, other.PausedSince, metaTime(now))
	return own.StartedAt != nil && ran <= end.Sub(own.StartedAt.Time)
}

// beganBeforePause reports whether the workload started, for the first time, while that of the clock
// ran, within resetAfter before its pause.
func (n Successor) beganBeforePause(s *v1alpha1.WorkloadClockStatus, resetAfter time.Duration) bool {
	if n.Own.StartedAt == nil || s.PausedSince == nil || s.LastRunningSince == nil {
		return false
	}
	both := s.PausedSince.Sub(n.Own.StartedAt.Time)
	return s.LastRunningSince.Before(n.Own.StartedAt) && both >= 0 && both < resetAfter
}

// overlap returns for how long a paused workload ran beside one that runs since its last start.
func overlap(own, paused *v1alpha1.WorkloadClockStatus) time.Duration {
	if own.RunningSince == nil || paused.PausedSince == nil {
		return 0
	}
	return paused.PausedSince.Sub(own.RunningSince.Time)
}

// ranSincePause returns for how long a workload that ended ran in its last interval after another was
// paused.
func ranSincePause(own, paused *v1alpha1.WorkloadClockStatus) time.Duration {
	if own.RunningSince != nil || own.PausedSince == nil || own.LastRunningSince == nil || paused.PausedSince == nil {
		return 0
	}
	return max(0, own.PausedSince.Sub(policytime.Later(own.LastRunningSince.Time, paused.PausedSince.Time)))
}

// IsRunning reports whether the workload's running time counts already.
func (n Successor) IsRunning() bool { return n.Own != nil && n.Own.RunningSince != nil }

// hasEarlierContinued reports whether the earlier workload of the name ran since the pause of a
// clock that has the name as its successor. Then it continued that clock.
func (n Successor) hasEarlierContinued(clock *v1alpha1.WorkloadClock) bool {
	paused := clock.Status.PausedSince
	if n.Earlier == nil || paused == nil {
		return false
	}
	since := cmp.Or(n.Earlier.RunningSince, n.Earlier.LastRunningSince)
	return since != nil && !since.Before(paused)
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

// ComparePredecessors orders the clocks that a workload can continue, the one to continue first: one
// with a stop in force, else the one with the longest running time.
func ComparePredecessors(a, b *v1alpha1.WorkloadClock, now time.Time) int {
	if stopped := a.Status.HasActiveStop(now); stopped != b.Status.HasActiveStop(now) {
		if stopped {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(runningTimeOf(&b.Status, now), runningTimeOf(&a.Status, now)), cmp.Compare(a.Name, b.Name))
}

// RanLonger reports whether a clock has more running time than another.
func RanLonger(a, b *v1alpha1.WorkloadClockStatus, now time.Time) bool {
	return runningTimeOf(a, now) > runningTimeOf(b, now)
}

// InheritStatus returns the first status of a workload that continues the clock of another.
// It keeps the running time until now, the warnings, the extensions and the stop, and drops
// what belongs to the old workload, such as its GPU time, which its own clock keeps.
func InheritStatus(from *v1alpha1.WorkloadClock, creator string, now time.Time) v1alpha1.WorkloadClockStatus {
	to := FormerStatus(&from.Status, now)
	to.RootUID, to.CompletedAt, to.Successor, to.GPUUsage = "", nil, "", nil
	to.InheritedFrom = InheritedFrom(&from.Status, creator)
	return to
}

// ContinueStatus returns the status of a workload that ran before and continues the clock of
// another. It keeps the longer running time, and the extensions of both. Time in which both ran
// counts once.
func ContinueStatus(own *v1alpha1.WorkloadClockStatus, from *v1alpha1.WorkloadClock, now time.Time) v1alpha1.WorkloadClockStatus {
	to := InheritStatus(from, own.CreatedBy, now)
	to.RootUID, to.TemplateHash, to.WorkloadType, to.CreatedBy = own.RootUID, own.TemplateHash, own.WorkloadType, own.CreatedBy
	to.PodControllers, to.GPUs, to.GPUUsage = own.PodControllers, own.GPUs, own.GPUUsage
	to.AccumulatedSeconds = max(own.AccumulatedSeconds,
		to.AccumulatedSeconds-wholeSeconds(overlap(own, &from.Status))+wholeSeconds(ranSincePause(own, &from.Status)))
	if fitsSinceStart(own, &from.Status, time.Duration(to.AccumulatedSeconds)*time.Second, now) {
		to.StartedAt = own.StartedAt
	}
	if own.RunningSince != nil {
		to.RunningSince, to.LastRunningSince, to.PausedSince = own.RunningSince, own.LastRunningSince, nil
		to.IdleSince, to.IdleUnknownSince, to.Conditions, to.Local = own.IdleSince, own.IdleUnknownSince, own.Conditions, own.Local
	}
	for _, extension := range own.Extensions {
		if slices.ContainsFunc(to.Extensions, func(e v1alpha1.ClockExtension) bool { return e.Name == extension.Name }) {
			continue
		}
		to.Extensions = append(to.Extensions, extension)
		if to.Limit != nil {
			to.Limit.InForce = toDuration(to.Limit.InForce.Length() + extension.By.Length())
		}
	}
	return to
}

// FormerStatus returns the status of a clock whose workload exists no longer. It ends the
// running interval now, and drops what belongs to the pods.
func FormerStatus(from *v1alpha1.WorkloadClockStatus, now time.Time) v1alpha1.WorkloadClockStatus {
	var to v1alpha1.WorkloadClockStatus
	from.DeepCopyInto(&to)
	if from.RunningSince != nil {
		to.AccumulatedSeconds = wholeSeconds(runningTimeOf(from, truncateToSecond(now)))
		to.LastRunningSince = to.RunningSince
		to.PausedSince = metaTime(policytime.Later(now, from.RunningSince.Time))
	}
	to.RunningSince, to.StartingSince, to.Deadline, to.Local, to.PodControllers = nil, nil, nil, nil, nil
	to.IdleSince, to.IdleUnknownSince, to.MissingSince, to.Conditions, to.GPUs = nil, nil, nil, nil, nil
	if from.GPUUsage != nil {
		to.GPUUsage = &v1alpha1.ClockGPUUsage{Days: to.GPUUsage.Days, CountedUntil: to.GPUUsage.CountedUntil}
	}
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
