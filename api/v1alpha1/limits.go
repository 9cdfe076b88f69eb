// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"strconv"

	"sluice.dev/api/period"
)

// WorkloadType is the purpose of a workload. It determines the workload's limits, its priority
// and whether it can be preempted.
type WorkloadType string

// The types of workload, and the key of limits for all types.
const (
	WorkloadTrain       WorkloadType = "train"
	WorkloadInteractive WorkloadType = "interactive"
	WorkloadInference   WorkloadType = "inference"
	// AnyWorkload is a key in a map of limits. No workload has this type.
	AnyWorkload WorkloadType = "*"
)

// WorkloadClockMode selects which time counts toward maxRuntime.
//
// +kubebuilder:validation:Enum=Running;Active
type WorkloadClockMode string

// The ways of counting a workload's time.
const (
	// ClockRunning counts the time in which at least one GPU pod runs.
	ClockRunning WorkloadClockMode = "Running"
	// ClockActive counts only the time in which a GPU is used as well.
	ClockActive WorkloadClockMode = "Active"
)

// WorkloadLimits are the limits of one type of workload. A limit that is left out is taken from
// the entry "*" of the same map.
//
// +kubebuilder:validation:XValidation:rule="!has(self.idleTimeout) || !has(self.maxRuntime) || self.idleTimeout.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum() <= self.maxRuntime.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum()",fieldPath=".idleTimeout",messageExpression="'must not be longer than maxRuntime, ' + self.maxRuntime"
// +kubebuilder:validation:XValidation:rule="!has(self.resetAfter) || !has(self.maxRuntime) || self.resetAfter.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum() <= self.maxRuntime.findAll('[0-9]{1,5}[dhms]').map(t, int(t.substring(0, size(t) - 1)) * {'d': 86400, 'h': 3600, 'm': 60, 's': 1}[t.substring(size(t) - 1)]).sum()",fieldPath=".resetAfter",messageExpression="'must not be longer than maxRuntime, ' + self.maxRuntime"
type WorkloadLimits struct {
	// MaxRuntime is the longest total running time of a workload. Restarts and preemptions do
	// not reset it; pending time does not count. Without it the runtime is not limited.
	//
	// +optional
	MaxRuntime *period.Duration `json:"maxRuntime,omitempty"`

	// IdleTimeout stops a workload whose GPUs were not used for this long. It must not be
	// longer than maxRuntime. Without it idle workloads are not stopped.
	//
	// +optional
	IdleTimeout *period.Duration `json:"idleTimeout,omitempty"`

	// StartTimeout stops a workload whose pods are bound to a node for this long and none of
	// which starts, for example because an image cannot be pulled: they hold GPUs. Default: 30m.
	//
	// +optional
	StartTimeout *period.Duration `json:"startTimeout,omitempty"`

	// Clock selects which time counts toward maxRuntime: the time in which GPU pods run
	// (Running, the default), or only the time in which their GPUs are used (Active).
	//
	// +optional
	Clock WorkloadClockMode `json:"clock,omitempty"`

	// ResetAfter is the time for which a workload must be stopped before its running time is reset to
	// zero. It must not be longer than maxRuntime. Default: 1h.
	//
	// +optional
	ResetAfter *period.Duration `json:"resetAfter,omitempty"`

	// DryRun reports the workloads that would be stopped and stops none. Default: false.
	//
	// +optional
	DryRun *bool `json:"dryRun,omitempty"`
}

// WorkloadTypes lists the types that a workload can have.
var WorkloadTypes = []WorkloadType{WorkloadTrain, WorkloadInteractive, WorkloadInference}

// DefaultResetAfter is the value of resetAfter if neither the department nor the project sets it.
var DefaultResetAfter = period.MustParseDuration("1h")

// DefaultStartTimeout is the value of startTimeout if neither the department nor the project sets it.
var DefaultStartTimeout = period.MustParseDuration("30m")

// Limits are the effective limits of a workload, with all defaults filled in.
type Limits struct {
	// MaxRuntime is the longest running time. The zero value means no limit.
	MaxRuntime period.Duration
	// IdleTimeout is the longest time without use. The zero value means no limit.
	IdleTimeout period.Duration
	// StartTimeout is the longest time for which pods may be bound without starting.
	StartTimeout period.Duration
	// Clock selects which time counts as running time.
	Clock WorkloadClockMode
	// ResetAfter is the time for which a workload must be stopped before its running time is reset.
	ResetAfter period.Duration
	// DryRun reports the workloads that would be stopped and stops none.
	DryRun bool
}

// TightestLimits returns the limits for workloads of type t in a project: for each limit the
// tighter of the department's and the project's. If a department tightens a limit later, the new
// limit applies to its projects immediately.
func TightestLimits(t WorkloadType, project, department map[WorkloadType]WorkloadLimits) Limits {
	limits := withDefaults(limitsFor(department, t))
	own := limitsFor(project, t)
	if d := own.MaxRuntime; d != nil && isShorter(*d, limits.MaxRuntime) {
		limits.MaxRuntime = *d
	}
	if d := own.IdleTimeout; d != nil && isShorter(*d, limits.IdleTimeout) {
		limits.IdleTimeout = *d
	}
	if d := own.StartTimeout; d != nil && isShorter(*d, limits.StartTimeout) {
		limits.StartTimeout = *d
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

// LooseLimit is a limit of a project that is looser than allowed.
type LooseLimit struct {
	// Type is the key in spec.workloads under which the project sets the limit.
	Type WorkloadType
	// Field is the name of the limit, such as maxRuntime.
	Field string
	// Value is the project's value.
	Value string
	// Bound is the tightest allowed value: the department's under the same key, else under
	// "*", else the default.
	Bound string
}

// FindLimitsAboveDepartment lists the limits of a project that are looser than its department's, ordered
// by type and field. A longer time is looser, except for resetAfter, where it is tighter. Active
// is looser than Running, and a dry run is looser than none.
func FindLimitsAboveDepartment(project, department map[WorkloadType]WorkloadLimits) []LooseLimit {
	var found []LooseLimit
	for _, t := range append([]WorkloadType{AnyWorkload}, WorkloadTypes...) {
		own, bound := project[t], withDefaults(limitsFor(department, t))
		add := func(name, value, limit string) {
			found = append(found, LooseLimit{Type: t, Field: name, Value: value, Bound: limit})
		}
		if d := own.MaxRuntime; d != nil && isShorter(bound.MaxRuntime, *d) {
			add("maxRuntime", d.String(), bound.MaxRuntime.String())
		}
		if d := own.IdleTimeout; d != nil && isShorter(bound.IdleTimeout, *d) {
			add("idleTimeout", d.String(), bound.IdleTimeout.String())
		}
		if d := own.StartTimeout; d != nil && isShorter(bound.StartTimeout, *d) {
			add("startTimeout", d.String(), bound.StartTimeout.String())
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

// limitsFor returns the limits of a type, completed with those of "*".
func limitsFor(limits map[WorkloadType]WorkloadLimits, t WorkloadType) WorkloadLimits {
	own, all := limits[t], limits[AnyWorkload]
	return WorkloadLimits{
		MaxRuntime:   cmp.Or(own.MaxRuntime, all.MaxRuntime),
		IdleTimeout:  cmp.Or(own.IdleTimeout, all.IdleTimeout),
		StartTimeout: cmp.Or(own.StartTimeout, all.StartTimeout),
		Clock:        cmp.Or(own.Clock, all.Clock),
		ResetAfter:   cmp.Or(own.ResetAfter, all.ResetAfter),
		DryRun:       cmp.Or(own.DryRun, all.DryRun),
	}
}

// withDefaults fills in the defaults for limits that a department leaves out.
func withDefaults(l WorkloadLimits) Limits {
	limits := Limits{Clock: cmp.Or(l.Clock, ClockRunning), ResetAfter: DefaultResetAfter, StartTimeout: DefaultStartTimeout}
	if l.MaxRuntime != nil {
		limits.MaxRuntime = *l.MaxRuntime
	}
	if l.IdleTimeout != nil {
		limits.IdleTimeout = *l.IdleTimeout
	}
	if l.StartTimeout != nil {
		limits.StartTimeout = *l.StartTimeout
	}
	if l.ResetAfter != nil {
		limits.ResetAfter = *l.ResetAfter
	}
	if l.DryRun != nil {
		limits.DryRun = *l.DryRun
	}
	return limits
}

// isShorter reports whether a is shorter than b, where a zero value means no limit.
func isShorter(a, b period.Duration) bool {
	if a.IsZero() || b.IsZero() {
		return !a.IsZero()
	}
	return a.Length() < b.Length()
}

// FindLimitsLoosenedByUpdate lists the project limits that a change removes or loosens, for each type of
// workload, ordered by type and field. It ignores the department's limits. A limit that is left
// out is the loosest. Value holds the limit after the change ("" if it is left out) and Bound the
// limit before it.
func FindLimitsLoosenedByUpdate(before, after map[WorkloadType]WorkloadLimits) []LooseLimit {
	var found []LooseLimit
	for _, t := range WorkloadTypes {
		was, is := limitsFor(before, t), limitsFor(after, t)
		add := func(name, value, bound string) {
			found = append(found, LooseLimit{Type: t, Field: name, Value: value, Bound: bound})
		}
		if d := was.MaxRuntime; d != nil && (is.MaxRuntime == nil || isShorter(*d, *is.MaxRuntime)) {
			add("maxRuntime", formatDuration(is.MaxRuntime), d.String())
		}
		if d := was.IdleTimeout; d != nil && (is.IdleTimeout == nil || isShorter(*d, *is.IdleTimeout)) {
			add("idleTimeout", formatDuration(is.IdleTimeout), d.String())
		}
		if d := was.StartTimeout; d != nil && (is.StartTimeout == nil || isShorter(*d, *is.StartTimeout)) {
			add("startTimeout", formatDuration(is.StartTimeout), d.String())
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

// formatDuration returns the text of d, or "" for nil.
func formatDuration(d *period.Duration) string {
	if d == nil {
		return ""
	}
	return d.String()
}
