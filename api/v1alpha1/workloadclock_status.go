// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
)

// ClockState says whether a workload's time runs.
//
// +kubebuilder:validation:Enum=Pending;Running;Paused;Stopped
type ClockState string

// The states of a clock.
const (
	// ClockStatePending: no GPU pod has run since the time began.
	ClockStatePending ClockState = "Pending"
	// ClockStateRunning: at least one GPU pod runs.
	ClockStateRunning ClockState = "Running"
	// ClockStatePaused: pods have run, and none does now.
	ClockStatePaused ClockState = "Paused"
	// ClockStateStopped: Sluice stopped the workload.
	ClockStateStopped ClockState = "Stopped"
)

// EndReason says why a workload ends, or ended.
//
// +kubebuilder:validation:Enum=MaxRuntime;Idle;ProjectSuspended;ShareExceeded;Preempted
type EndReason string

// The reasons for an end.
const (
	EndMaxRuntime       EndReason = "MaxRuntime"
	EndIdle             EndReason = "Idle"
	EndProjectSuspended EndReason = "ProjectSuspended"
	EndShareExceeded    EndReason = "ShareExceeded"
	EndPreempted        EndReason = "Preempted"
)

// WorkloadClockStatus is how far a workload's time has run. All times in it are
// policy time.
type WorkloadClockStatus struct {
	// RootUID is the workload's identity now.
	//
	// +optional
	RootUID types.UID `json:"rootUID,omitempty"`

	// TemplateHash is the hash of the workload's pod template. A workload with
	// another name and the same template is taken for the same one while the first
	// is stopped.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TemplateHash string `json:"templateHash,omitempty"`

	// WorkloadType is the type whose limits hold.
	//
	// +optional
	// +kubebuilder:validation:Enum=train;interactive;inference
	WorkloadType WorkloadType `json:"workloadType,omitempty"`

	// CreatedBy is the name of the user who made the workload.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	CreatedBy string `json:"createdBy,omitempty"`

	// State says whether the time runs.
	//
	// +optional
	State ClockState `json:"state,omitempty"`

	// StartedAt is when the time began: with the first interval, anew after each reset.
	//
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// AccumulatedSeconds is the time of all closed intervals. The open one, from
	// runningSince on, comes on top.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	AccumulatedSeconds int64 `json:"accumulatedSeconds"`

	// RunningSince is when the open interval began; absent while none is open.
	//
	// +optional
	RunningSince *metav1.Time `json:"runningSince,omitempty"`

	// PausedSince is when the last interval ended; resetAfter counts from here.
	//
	// +optional
	PausedSince *metav1.Time `json:"pausedSince,omitempty"`

	// Limit is how long the workload may run; absent where nothing limits it.
	//
	// +optional
	Limit *ClockLimit `json:"limit,omitempty"`

	// IdleSince is when a GPU of the workload was last in use, put off by the time
	// for which that could not be known; absent while it is in use.
	//
	// +optional
	IdleSince *metav1.Time `json:"idleSince,omitempty"`

	// IdleUnknownSince is since when nobody can tell whether the workload's GPUs are
	// used (condition IdleUnknown): from then on its idle time stands still.
	//
	// +optional
	IdleUnknownSince *metav1.Time `json:"idleUnknownSince,omitempty"`

	// Local says the times above for people to read, in the department's time zone.
	//
	// +optional
	Local *ClockLocal `json:"local,omitempty"`

	// Deadline is the announced end; absent where there is none.
	//
	// +optional
	Deadline *ClockDeadline `json:"deadline,omitempty"`

	// Leads are the warnings that were given.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Leads []ClockLead `json:"leads,omitempty"`

	// Extensions are the extensions that were granted since the time began.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Extensions []ClockExtension `json:"extensions,omitempty"`

	// Stopped says when, why and until when the workload was stopped by Sluice.
	//
	// +optional
	Stopped *ClockStop `json:"stopped,omitempty"`

	// MissingSince is since when there is no such workload any more. Thirty days later
	// the clock goes, too.
	//
	// +optional
	MissingSince *metav1.Time `json:"missingSince,omitempty"`

	// Conditions are IdleUnknown, Unstoppable and DryRun.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClockLimit is how long a workload may run.
type ClockLimit struct {
	// Configured is what the department, the project and the pods say: the shortest.
	//
	// +required
	Configured period.Duration `json:"configured"`

	// InForce is what holds, in accumulated running time: what is configured and the
	// extensions that were granted. Where the limit was cut while the workload ran it
	// is longer, so that the longest lead is left.
	//
	// +required
	InForce period.Duration `json:"inForce"`
}

// ClockLocal is what a clock shows to people.
type ClockLocal struct {
	// Accumulated is the time of all closed intervals: 12h30m.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Accumulated string `json:"accumulated,omitempty"`

	// RunningSince is when the open interval began: 2026-10-05 14:00 CEST.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RunningSince string `json:"runningSince,omitempty"`

	// Ends is the deadline, or where there is none why not.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Ends string `json:"ends,omitempty"`
}

// ClockDeadline is an end that lies ahead.
type ClockDeadline struct {
	// At is when the workload ends if its time runs on.
	//
	// +required
	At metav1.Time `json:"at"`

	// Reason is why it ends then.
	//
	// +required
	Reason EndReason `json:"reason"`

	// LimitSeconds is the limit in accumulated running time, where the reason is
	// MaxRuntime.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	LimitSeconds int64 `json:"limitSeconds,omitempty"`

	// AnnouncedAt is when a notice with this deadline, or an earlier one, was first
	// recorded.
	//
	// +optional
	AnnouncedAt *metav1.Time `json:"announcedAt,omitempty"`
}

// ClockLead is a warning that was given.
type ClockLead struct {
	// Lead is how long before the end the warning was due.
	//
	// +required
	Lead period.Duration `json:"lead"`

	// Reason is why the workload was to end.
	//
	// +required
	Reason EndReason `json:"reason"`

	// LimitSeconds is the limit in accumulated running time that the warning spoke
	// of, where the reason is MaxRuntime.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	LimitSeconds int64 `json:"limitSeconds,omitempty"`

	// At is when it was recorded.
	//
	// +required
	At metav1.Time `json:"at"`
}

// ClockExtension is time that was added.
type ClockExtension struct {
	// Name is the name of the Extension.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// By is how much was added.
	//
	// +required
	By period.Duration `json:"by"`

	// At is when.
	//
	// +required
	At metav1.Time `json:"at"`

	// SelfService is true where nobody had to approve it.
	//
	// +optional
	SelfService bool `json:"selfService,omitempty"`
}

// ClockStop is a stop by Sluice.
type ClockStop struct {
	// At is when.
	//
	// +required
	At metav1.Time `json:"at"`

	// Reason is why.
	//
	// +required
	Reason EndReason `json:"reason"`

	// Until is when the workload may be started again, and its time begins anew;
	// absent where somebody has to decide first. It is the instant of the stop where
	// the workload may be started again at once.
	//
	// +optional
	Until *metav1.Time `json:"until,omitempty"`

	// Times is how often it had to be stopped, since something started it again.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Times int32 `json:"times,omitempty"`
}
