// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
)

// ClockState is the state of a workload's clock.
//
// +kubebuilder:validation:Enum=Pending;Running;Paused;Stopping;Stopped;Finished;Deleted
type ClockState string

// The states of a clock.
const (
	// ClockStatePending means that no GPU pod has run since the clock was created or reset.
	ClockStatePending ClockState = "Pending"
	// ClockStateRunning means that at least one GPU pod runs, also if Sluice tried to stop the
	// workload and could not (condition Unstoppable).
	ClockStateRunning ClockState = "Running"
	// ClockStatePaused means that GPU pods have run, none runs now, and the workload exists and
	// has not finished.
	ClockStatePaused ClockState = "Paused"
	// ClockStateStopping means that Sluice is stopping the workload and its GPU pods have not ended.
	ClockStateStopping ClockState = "Stopping"
	// ClockStateStopped means that Sluice stopped the workload.
	ClockStateStopped ClockState = "Stopped"
	// ClockStateFinished means that the workload finished by itself, with success or not.
	ClockStateFinished ClockState = "Finished"
	// ClockStateDeleted means that the workload no longer exists, or that Sluice may no longer
	// read it. A stop of a deleted workload stays Stopped until it ends.
	ClockStateDeleted ClockState = "Deleted"
)

// WorkloadClockStatus is the running time of a workload and its deadline. All times in it are
// policy time.
type WorkloadClockStatus struct {
	// RootUID is the UID of the workload.
	//
	// +optional
	RootUID types.UID `json:"rootUID,omitempty"`

	// PodControllers are the UIDs of the objects that control pods of the workload that run or
	// ran, such as the ReplicaSets of a Deployment, sorted; without the workload itself, and at
	// most 64. A project that has expired still accepts pods of these controllers, which replace
	// those of a workload that ran before.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	PodControllers []types.UID `json:"podControllers,omitempty"`

	// TemplateHash is a hash of the workload's pod templates. If the creator deletes or pauses
	// the workload, or Sluice stops it, another workload of the same creator with the same hash
	// that starts meanwhile continues this clock until it is reset.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TemplateHash string `json:"templateHash,omitempty"`

	// WorkloadType is the type of workload whose limits apply.
	//
	// +optional
	// +kubebuilder:validation:Enum=train;interactive;inference
	WorkloadType WorkloadType `json:"workloadType,omitempty"`

	// CreatedBy is the name of the user who created the workload. For a run of a CronJob it
	// is the user who created the CronJob.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	CreatedBy string `json:"createdBy,omitempty"`

	// InheritedFrom is the user whose running time the clock contains, if a ServiceAccount
	// continued that user's workload. It is absent if all running time is the creator's.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	InheritedFrom string `json:"inheritedFrom,omitempty"`

	// Successor is the name of the clock that continues this one after the workload was
	// deleted, or while its user pauses it. Only one clock continues another.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Successor string `json:"successor,omitempty"`

	// CompletedAt is when the workload was first found to have finished by itself, with success
	// or not. No other workload inherits the running time of a finished one.
	//
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`

	// State is the state of the clock.
	//
	// +optional
	State ClockState `json:"state,omitempty"`

	// StartedAt is the start of the first running interval since the clock was created or
	// reset.
	//
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// AccumulatedSeconds is the sum of all closed running intervals in seconds. The open
	// interval since runningSince is not included.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	AccumulatedSeconds int64 `json:"accumulatedSeconds"`

	// RunningSince is the start of the open running interval. It is absent if no GPU pod
	// runs.
	//
	// +optional
	RunningSince *metav1.Time `json:"runningSince,omitempty"`

	// PausedSince is the end of the last running interval. ResetAfter is counted from this
	// time.
	//
	// +optional
	PausedSince *metav1.Time `json:"pausedSince,omitempty"`

	// LastRunningSince is the start of the last closed running interval.
	//
	// +optional
	LastRunningSince *metav1.Time `json:"lastRunningSince,omitempty"`

	// Limit is the longest running time. It is absent if the runtime is not limited.
	//
	// +optional
	Limit *ClockLimit `json:"limit,omitempty"`

	// IdleSince is the start of the idle time: the last use of a GPU, postponed by the time in
	// which the use was unknown. It is absent while a GPU is used.
	//
	// +optional
	IdleSince *metav1.Time `json:"idleSince,omitempty"`

	// IdleUnknownSince is the start of the time in which the use of the workload's GPUs is
	// unknown (condition IdleUnknown). This time does not count as idle.
	//
	// +optional
	IdleUnknownSince *metav1.Time `json:"idleUnknownSince,omitempty"`

	// StartingSince is since when GPU pods are bound to a node and none has started. It is
	// absent if any GPU pod runs.
	//
	// +optional
	StartingSince *metav1.Time `json:"startingSince,omitempty"`

	// GPUs is the number of GPUs that the workload's bound pods hold, as a quantity: 500m is
	// half a GPU. It is absent if no GPU pod is bound, and 0 if no request of the bound pods can
	// be parsed.
	//
	// +optional
	GPUs *resource.Quantity `json:"gpus,omitempty"`

	// GPUUsage is the use of the GPUs by the workload. It is absent until a GPU pod was bound. A change of
	// these figures alone is written at most every five minutes.
	//
	// +optional
	GPUUsage *ClockGPUUsage `json:"gpuUsage,omitempty"`

	// Local shows the times above in the department's time zone, for display.
	//
	// +optional
	Local *ClockLocal `json:"local,omitempty"`

	// Deadline is when the workload will be stopped. It is absent if no end is planned.
	//
	// +optional
	Deadline *ClockDeadline `json:"deadline,omitempty"`

	// Leads are the warnings that were recorded.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Leads []ClockLead `json:"leads,omitempty"`

	// Extensions are the extensions that were granted since the clock was created or reset.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Extensions []ClockExtension `json:"extensions,omitempty"`

	// Stopped records the last stop by Sluice.
	//
	// +optional
	Stopped *ClockStop `json:"stopped,omitempty"`

	// MissingSince is when the workload was first found to be missing. The clock is deleted
	// thirty days later.
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

// ClockLimit is the longest running time of a workload.
type ClockLimit struct {
	// Configured is the shortest limit that the department, the project and the pods set.
	//
	// +required
	Configured period.Duration `json:"configured"`

	// InForce is the effective limit: the configured one plus the granted extensions. If the
	// limit is shortened while the workload runs, the workload keeps at least the longest
	// lead, or its old remaining time if that is less.
	//
	// +required
	InForce period.Duration `json:"inForce"`

	// ShortenedFrom is the limit that was in force before the department or the project
	// shortened it while the workload ran; 99999d if there was none. The stop limiter counts the
	// ends of these workloads. It is absent if the limit was not shortened, or was chosen by
	// the workload itself (sluice.dev/max-runtime or its type).
	//
	// +optional
	ShortenedFrom *period.Duration `json:"shortenedFrom,omitempty"`

	// HeldFrom is the limit that would be in force without a pause, if a pause of Sluice held the
	// end. Until the workload ends, InForce is longer.
	//
	// +optional
	HeldFrom *period.Duration `json:"heldFrom,omitempty"`
}

// ClockLocal shows the times of a clock for display.
type ClockLocal struct {
	// Accumulated is the sum of all closed running intervals, such as 12h30m.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Accumulated string `json:"accumulated,omitempty"`

	// RunningSince is the start of the open running interval, such as 2026-10-05 14:00 CEST.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RunningSince string `json:"runningSince,omitempty"`

	// Ends is the deadline, or the reason why there is none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Ends string `json:"ends,omitempty"`
}

// ClockDeadline is the planned end of a workload.
type ClockDeadline struct {
	// At is when the workload will be stopped if its clock keeps running.
	//
	// +required
	At metav1.Time `json:"at"`

	// Reason is why it will be stopped.
	//
	// +required
	Reason EndReason `json:"reason"`

	// LimitSeconds is the limit of the running time in seconds, if the reason is MaxRuntime.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	LimitSeconds int64 `json:"limitSeconds,omitempty"`

	// AnnouncedAt is when a Notice with this or an earlier deadline was first recorded.
	//
	// +optional
	AnnouncedAt *metav1.Time `json:"announcedAt,omitempty"`

	// HeldFrom is when the workload would end without a pause, if a pause of Sluice held the end.
	//
	// +optional
	HeldFrom *metav1.Time `json:"heldFrom,omitempty"`
}
