// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Decide returns the decision for a workload with a recorded status. It is deterministic.
// Called again with the status that it returned, it repeats no warning.
func Decide(now time.Time, previous v1alpha1.WorkloadClockStatus, observed Observation, limits EffectiveLimits) Decision {
	d := &decision{now: truncateToSecond(now), observed: observed, limits: limits}
	previous.DeepCopyInto(&d.Status)
	d.recordExtensions()
	d.releaseStop()
	d.recordPause()
	d.resetClock()
	d.updateRunningTime()
	d.recordEnd()
	d.resetClock()
	d.updateStartingTime()
	held := d.releaseHeldLimit()
	d.determineLimit()
	d.holdLimit(held)
	d.updateIdleTime()
	d.announceDeadlines()
	d.enforceProjectEnd()
	d.enforceDeadline()
	d.evaluateDryRun()
	d.setState()
	return d.Decision
}

// decision is the state of one call of Decide.
type decision struct {
	Decision
	now      time.Time
	observed Observation
	limits   EffectiveLimits
	// intervalOpened is true if this decision opened the running interval.
	intervalOpened bool
	// idleDuration is the known idle time.
	idleDuration time.Duration
	// formerDeadline is the deadline of the decision before.
	formerDeadline *v1alpha1.ClockDeadline
}

// runningTime returns the accumulated running time, including the open interval.
func (d *decision) runningTime() time.Duration { return runningTimeOf(&d.Status, d.now) }

// scheduleNext moves the next decision forward to t. It never moves it back.
func (d *decision) scheduleNext(t time.Time) {
	if t.After(d.now) && (d.NextDecision.IsZero() || t.Before(d.NextDecision)) {
		d.NextDecision = t
	}
}

// setState derives the state from the other fields of the status.
func (d *decision) setState() {
	switch {
	case d.Status.Stopped != nil && (d.observed.Running || !d.observed.StartingSince.IsZero()):
		d.Status.State = v1alpha1.ClockStateStopping
	case d.Status.Stopped != nil:
		d.Status.State = v1alpha1.ClockStateStopped
	case d.Status.RunningSince != nil:
		d.Status.State = v1alpha1.ClockStateRunning
	case d.Status.MissingSince != nil:
		d.Status.State = v1alpha1.ClockStateDeleted
	case d.Status.CompletedAt != nil && !d.observed.HasPods:
		d.Status.State = v1alpha1.ClockStateFinished
	case d.Status.AccumulatedSeconds > 0 || d.Status.PausedSince != nil:
		d.Status.State = v1alpha1.ClockStatePaused
	default:
		d.Status.State = v1alpha1.ClockStatePending
	}
}

// truncateToSecond returns t in the resolution of the API.
func truncateToSecond(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

func metaTime(t time.Time) *metav1.Time { return &metav1.Time{Time: truncateToSecond(t)} }

func wholeSeconds(length time.Duration) int64 { return int64(length / time.Second) }

// Decision is the result of Decide. The caller must record the warnings first, then write
// the status, and stop the workload last. After a crash it can repeat all three.
type Decision struct {
	// Status is the status to write. Decide does not change conditions and display fields.
	Status v1alpha1.WorkloadClockStatus
	// Warnings are recorded as Notices.
	Warnings []Warning
	// Stop is true if the workload must be stopped, as Status.Stopped says.
	Stop bool
	// Stopped is true if this decision set Status.Stopped.
	Stopped bool
	// Released is true if a stop ended: its annotation must be removed from the workload.
	Released bool
	// Reset is true if this decision reset the workload's running time.
	Reset bool
	// WouldStop is the reason for a stop that a dry run prevents.
	WouldStop v1alpha1.EndReason
	// NextDecision is the time of the next decision if nothing changes before. The zero
	// time means never.
	NextDecision time.Time
}

// Warning announces the end of a workload.
type Warning struct {
	// Reason is MaxRuntime, Idle or StartTimeout.
	Reason v1alpha1.EndReason
	// Lead is the time between DueAt and the deadline for which it was due.
	Lead time.Duration
	// DueAt is when the warning was due.
	DueAt time.Time
	// Deadline is when the workload ends.
	Deadline time.Time
	// LimitSeconds is the limit in accumulated running time, for MaxRuntime.
	LimitSeconds int64
	// Superseded is true if a later warning of the same decision contains this one, or if one of
	// a former limit had the same deadline.
	Superseded bool
}

// EffectiveLimits are the limits in force for a workload.
type EffectiveLimits struct {
	// Limits are those of the workload type in the project. MaxRuntime is the shorter of
	// the project's limit and the one that the pods request.
	v1alpha1.Limits
	// SetByPods is true if the pods request MaxRuntime, by themselves or by their type; false
	// if the department or the project sets it.
	SetByPods bool
	// Leads are the times before the end at which warnings are due; at least one.
	Leads []time.Duration
	// Exempt is true if the project is exempt or on hold: Decide stops nothing.
	Exempt bool
	// GrantedExtensions are approved extensions. The status may hold some of them already.
	GrantedExtensions []v1alpha1.ClockExtension
}

// Observation is the observed state of a workload.
type Observation struct {
	// Running is true while at least one GPU pod runs.
	Running bool
	// RunningSince is the start of the first running pod, or the creation of the project if
	// that is later. The zero time means now.
	RunningSince time.Time
	// StartingSince is when the first pod was bound or admitted of a workload none of whose pods
	// runs, or the creation of the project if that is later. It is zero if no pod is either.
	StartingSince time.Time
	// Completed is true if the workload finished by itself.
	Completed bool
	// Missing is true if the workload has no pods and does not exist.
	Missing bool
	// HasPods is true if GPU pods exist, bound or not, that have not ended and are not being
	// deleted. A Job of several pods can create the next after one succeeded.
	HasPods bool
	// ProjectEnd is why the project stops all its workloads, whatever their limits are:
	// ProjectSuspended or ProjectDeleted. It is empty if the project does not.
	ProjectEnd v1alpha1.EndReason
	// HasPodsToEnd is true if GPU pods exist, bound or not, that a stop must end.
	HasPodsToEnd bool
	// Utilization is the use of the workload's GPUs.
	Utilization Utilization
	// PausedUntil is the end of the present or the last pause; zero if there was none.
	PausedUntil time.Time
}

// endsWithProject reports whether the workload has pods that the end of its project ends.
func (o *Observation) endsWithProject() bool { return o.ProjectEnd != "" && o.HasPodsToEnd }

// Utilization is the use of a workload's GPUs.
type Utilization struct {
	// Known is false if a node has no fresh sample or cannot measure utilization.
	Known bool
	// LastActive is the latest use by any pod.
	LastActive time.Time
	// SampledAt is the oldest sample of the nodes. Idle time counts up to it.
	SampledAt time.Time
}

// hasRuntimeLimit reports whether a limit on running time can stop the workload.
func (l *EffectiveLimits) hasRuntimeLimit() bool {
	return !l.Exempt && !l.DryRun && !l.MaxRuntime.IsZero()
}

// hasIdleTimeout reports whether the idle timeout can stop the workload.
func (l *EffectiveLimits) hasIdleTimeout() bool {
	return !l.Exempt && !l.DryRun && !l.IdleTimeout.IsZero()
}

// hasStartTimeout reports whether the start timeout can stop the workload.
func (l *EffectiveLimits) hasStartTimeout() bool {
	return !l.Exempt && !l.DryRun && !l.StartTimeout.IsZero()
}

func (l *EffectiveLimits) longestLead() time.Duration  { return slices.Max(l.Leads) }
func (l *EffectiveLimits) shortestLead() time.Duration { return slices.Min(l.Leads) }
