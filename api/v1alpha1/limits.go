// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"strconv"

	"sluice.dev/api/period"
)

// WorkloadTypes are the types that a workload can have.
var WorkloadTypes = []WorkloadType{WorkloadTrain, WorkloadInteractive, WorkloadInference}

// DefaultResetAfter is resetAfter where neither department nor project says it.
var DefaultResetAfter = period.MustParseDuration("1h")

// Limits are the limits that hold for a workload, with nothing left open.
type Limits struct {
	// MaxRuntime is the longest running time; the zero value is none.
	MaxRuntime period.Duration
	// IdleTimeout is the longest time without use; the zero value is none.
	IdleTimeout period.Duration
	// Clock says when the running time counts.
	Clock WorkloadClockMode
	// ResetAfter is how long a stop must last before the time begins anew.
	ResetAfter period.Duration
	// DryRun reports what would be stopped, and stops nothing.
	DryRun bool
}

// LimitsOf is what holds for workloads of one type in a project: of each limit
// the department's, or the project's where that is tighter. So a project whose
// department tightens its limits later is bound by them at once.
func LimitsOf(t WorkloadType, project, department map[WorkloadType]WorkloadLimits) Limits {
	limits := decided(entry(department, t))
	own := entry(project, t)
	if d := own.MaxRuntime; d != nil && shorter(*d, limits.MaxRuntime) {
		limits.MaxRuntime = *d
	}
	if d := own.IdleTimeout; d != nil && shorter(*d, limits.IdleTimeout) {
		limits.IdleTimeout = *d
	}
	if d := own.ResetAfter; d != nil && d.Length() > limits.ResetAfter.Length() {
		limits.ResetAfter = *d
	}
	if own.Clock == ClockRunning {
		limits.Clock = ClockRunning
	}
	if own.DryRun != nil && !*own.DryRun {
		limits.DryRun = false
	}
	return limits
}

// Loosening is a limit by which a project would be bound less than its department
// binds it.
type Loosening struct {
	// Type is the key in spec.workloads under which the project has it.
	Type WorkloadType
	// Field is the name of the limit there: maxRuntime.
	Field string
	// Value is what the project has.
	Value string
	// Bound is what the department has, under the same key or, where that leaves it
	// open, under "*", or by default.
	Bound string
}

// Looser lists the limits of a project that are looser than its department's, in
// the order of types and of fields. Longer is looser, but for resetAfter, where
// it is tighter; Active is looser than Running, and a dry run than none.
func Looser(project, department map[WorkloadType]WorkloadLimits) []Loosening {
	var found []Loosening
	for _, t := range append([]WorkloadType{AnyWorkload}, WorkloadTypes...) {
		own, bound := project[t], decided(entry(department, t))
		add := func(name, value, limit string) {
			found = append(found, Loosening{Type: t, Field: name, Value: value, Bound: limit})
		}
		if d := own.MaxRuntime; d != nil && shorter(bound.MaxRuntime, *d) {
			add("maxRuntime", d.String(), bound.MaxRuntime.String())
		}
		if d := own.IdleTimeout; d != nil && shorter(bound.IdleTimeout, *d) {
			add("idleTimeout", d.String(), bound.IdleTimeout.String())
		}
		if own.Clock == ClockActive && bound.Clock == ClockRunning {
			add("clock", string(own.Clock), string(bound.Clock))
		}
		if d := own.ResetAfter; d != nil && d.Length() < bound.ResetAfter.Length() {
			add("resetAfter", d.String(), bound.ResetAfter.String())
		}
		if d := own.DryRun; d != nil && *d && !bound.DryRun {
			add("dryRun", strconv.FormatBool(*d), strconv.FormatBool(bound.DryRun))
		}
	}
	return found
}

// entry is the entry for a type, with what it leaves open taken from "*".
func entry(limits map[WorkloadType]WorkloadLimits, t WorkloadType) WorkloadLimits {
	own, all := limits[t], limits[AnyWorkload]
	return WorkloadLimits{
		MaxRuntime:  cmp.Or(own.MaxRuntime, all.MaxRuntime),
		IdleTimeout: cmp.Or(own.IdleTimeout, all.IdleTimeout),
		Clock:       cmp.Or(own.Clock, all.Clock),
		ResetAfter:  cmp.Or(own.ResetAfter, all.ResetAfter),
		DryRun:      cmp.Or(own.DryRun, all.DryRun),
	}
}

// decided fills the defaults into what a department leaves open.
func decided(l WorkloadLimits) Limits {
	limits := Limits{Clock: cmp.Or(l.Clock, ClockRunning), ResetAfter: DefaultResetAfter}
	if l.MaxRuntime != nil {
		limits.MaxRuntime = *l.MaxRuntime
	}
	if l.IdleTimeout != nil {
		limits.IdleTimeout = *l.IdleTimeout
	}
	if l.ResetAfter != nil {
		limits.ResetAfter = *l.ResetAfter
	}
	if l.DryRun != nil {
		limits.DryRun = *l.DryRun
	}
	return limits
}

// shorter reports whether a is shorter than b, where "not set" is without end.
func shorter(a, b period.Duration) bool {
	if a.IsZero() || b.IsZero() {
		return !a.IsZero()
	}
	return a.Length() < b.Length()
}
