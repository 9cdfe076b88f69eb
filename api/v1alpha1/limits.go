// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"strconv"

	"sluice.dev/api/period"
)

// WorkloadType is what a workload is for. It decides its limits, its priority
// and whether it can be preempted.
type WorkloadType string

// The types of workload, and the key under which a map of limits holds what is
// valid for all of them.
const (
	WorkloadTrain       WorkloadType = "train"
	WorkloadInteractive WorkloadType = "interactive"
	WorkloadInference   WorkloadType = "inference"
	// AnyWorkload is a key in a map of limits only; no workload is of this type.
	AnyWorkload WorkloadType = "*"
)

// WorkloadClockMode says when a workload's time runs.
//
// +kubebuilder:validation:Enum=Running;Active
type WorkloadClockMode string

// The ways of counting a workload's time.
const (
	// ClockRunning counts while at least one GPU pod runs.
	ClockRunning WorkloadClockMode = "Running"
	// ClockActive counts only while a GPU is in use as well.
	ClockActive WorkloadClockMode = "Active"
)

// WorkloadLimits are the limits of one type of workload. What is left open is
// taken from the entry "*" of the same map.
//
// +kubebuilder:validation:XValidation:rule="!has(self.idleTimeout) || !has(self.maxRuntime) || self.idleTimeout.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum() <= self.maxRuntime.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum()",fieldPath=".idleTimeout",messageExpression="'must not be longer than maxRuntime, ' + self.maxRuntime"
// +kubebuilder:validation:XValidation:rule="!has(self.resetAfter) || !has(self.maxRuntime) || self.resetAfter.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum() <= self.maxRuntime.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum()",fieldPath=".resetAfter",messageExpression="'must not be longer than maxRuntime, ' + self.maxRuntime"
type WorkloadLimits struct {
	// MaxRuntime is how long a workload may run in all, over restarts and
	// preemptions; waiting does not count. Without it there is no end.
	//
	// +optional
	MaxRuntime *period.Duration `json:"maxRuntime,omitempty"`

	// IdleTimeout ends a workload whose GPUs were not used for this long. At most
	// maxRuntime. Without it an idle workload runs on.
	//
	// +optional
	IdleTimeout *period.Duration `json:"idleTimeout,omitempty"`

	// Clock says when the time of maxRuntime runs: while pods run (Running, the
	// default), or only while their GPUs are used (Active).
	//
	// +optional
	Clock WorkloadClockMode `json:"clock,omitempty"`

	// ResetAfter is how long a workload must have been stopped before its time
	// begins anew. At most maxRuntime; the default is 1h.
	//
	// +optional
	ResetAfter *period.Duration `json:"resetAfter,omitempty"`

	// DryRun reports what would be stopped, and stops nothing. The default is false.
	//
	// +optional
	DryRun *bool `json:"dryRun,omitempty"`
}

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

// EffectiveLimits is what holds for workloads of one type in a project: of each limit
// the department's, or the project's where that is tighter. So a project whose
// department tightens its limits later is bound by them at once.
func EffectiveLimits(t WorkloadType, project, department map[WorkloadType]WorkloadLimits) Limits {
	limits := withDefaults(limitsFor(department, t))
	own := limitsFor(project, t)
	if d := own.MaxRuntime; d != nil && isShorter(*d, limits.MaxRuntime) {
		limits.MaxRuntime = *d
	}
	if d := own.IdleTimeout; d != nil && isShorter(*d, limits.IdleTimeout) {
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

// LoosenedLimit is a limit by which a project would be bound less than its department
// binds it.
type LoosenedLimit struct {
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

// FindLooserLimits lists the limits of a project that are looser than its department's, in
// the order of types and of fields. Longer is looser, but for resetAfter, where
// it is tighter; Active is looser than Running, and a dry run than none.
func FindLooserLimits(project, department map[WorkloadType]WorkloadLimits) []LoosenedLimit {
	var found []LoosenedLimit
	for _, t := range append([]WorkloadType{AnyWorkload}, WorkloadTypes...) {
		own, bound := project[t], withDefaults(limitsFor(department, t))
		add := func(name, value, limit string) {
			found = append(found, LoosenedLimit{Type: t, Field: name, Value: value, Bound: limit})
		}
		if d := own.MaxRuntime; d != nil && isShorter(bound.MaxRuntime, *d) {
			add("maxRuntime", d.String(), bound.MaxRuntime.String())
		}
		if d := own.IdleTimeout; d != nil && isShorter(bound.IdleTimeout, *d) {
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

// limitsFor is the entry for a type, with what it leaves open taken from "*".
func limitsFor(limits map[WorkloadType]WorkloadLimits, t WorkloadType) WorkloadLimits {
	own, all := limits[t], limits[AnyWorkload]
	return WorkloadLimits{
		MaxRuntime:  cmp.Or(own.MaxRuntime, all.MaxRuntime),
		IdleTimeout: cmp.Or(own.IdleTimeout, all.IdleTimeout),
		Clock:       cmp.Or(own.Clock, all.Clock),
		ResetAfter:  cmp.Or(own.ResetAfter, all.ResetAfter),
		DryRun:      cmp.Or(own.DryRun, all.DryRun),
	}
}

// withDefaults fills the defaults into what a department leaves open.
func withDefaults(l WorkloadLimits) Limits {
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

// isShorter reports whether a is shorter than b, where "not set" is without end.
func isShorter(a, b period.Duration) bool {
	if a.IsZero() || b.IsZero() {
		return !a.IsZero()
	}
	return a.Length() < b.Length()
}

// FindLoosenedLimits lists the limits of a project's own that a change takes away or makes
// looser, for each type of workload, in the order of types and of fields, whatever
// its department has now. A value that is left open binds least, since the
// department's holds then. Of each, Value is what the type has after the change, ""
// where that is left open, and Bound what it had before.
func FindLoosenedLimits(before, after map[WorkloadType]WorkloadLimits) []LoosenedLimit {
	var found []LoosenedLimit
	for _, t := range WorkloadTypes {
		was, is := limitsFor(before, t), limitsFor(after, t)
		add := func(name, value, bound string) {
			found = append(found, LoosenedLimit{Type: t, Field: name, Value: value, Bound: bound})
		}
		if d := was.MaxRuntime; d != nil && (is.MaxRuntime == nil || isShorter(*d, *is.MaxRuntime)) {
			add("maxRuntime", formatDuration(is.MaxRuntime), d.String())
		}
		if d := was.IdleTimeout; d != nil && (is.IdleTimeout == nil || isShorter(*d, *is.IdleTimeout)) {
			add("idleTimeout", formatDuration(is.IdleTimeout), d.String())
		}
		if was.Clock == ClockRunning && is.Clock != ClockRunning {
			add("clock", string(is.Clock), string(was.Clock))
		}
		if d := was.ResetAfter; d != nil && (is.ResetAfter == nil || is.ResetAfter.Length() < d.Length()) {
			add("resetAfter", formatDuration(is.ResetAfter), d.String())
		}
		if d := was.DryRun; d != nil && !*d && (is.DryRun == nil || *is.DryRun) {
			value := ""
			if is.DryRun != nil {
				value = strconv.FormatBool(*is.DryRun)
			}
			add("dryRun", value, strconv.FormatBool(*d))
		}
	}
	return found
}

// formatDuration is the duration as it was written; "" where none was.
func formatDuration(d *period.Duration) string {
	if d == nil {
		return ""
	}
	return d.String()
}
