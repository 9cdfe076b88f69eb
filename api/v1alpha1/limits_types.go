// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "sluice.dev/api/period"

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
