// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// UsageRecordSpec names the project and the month of a record. It cannot be changed.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: another month has another record"
type UsageRecordSpec struct {
	// Project is the project's name.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Project string `json:"project"`

	// ProjectUID is the project's UID. It differs if the project was deleted and created
	// again.
	//
	// +optional
	ProjectUID types.UID `json:"projectUID,omitempty"`

	// Month is the month, YYYY-MM, in the department's time zone.
	//
	// +required
	// +kubebuilder:validation:MaxLength=7
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{4}-(0[1-9]|1[0-2])$')",message="must be a month, YYYY-MM, such as 2026-10"
	Month string `json:"month"`
}

// UsageRecordStatus is the recorded GPU usage.
type UsageRecordStatus struct {
	// Department is the project's department at the last update.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Department string `json:"department,omitempty"`

	// GPUMilliHours is the sum of all entries in thousandths of a GPU hour, rounded down:
	// 1000 is one GPU for one hour.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUMilliHours int64 `json:"gpuMilliHours"`

	// UsedGPUMilliHours is the part of gpuMilliHours in which the pods used their GPUs, as the
	// agents of their nodes measured it.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	UsedGPUMilliHours int64 `json:"usedGPUMilliHours,omitempty"`

	// IdleGPUMilliHours is the part of gpuMilliHours in which the pods did not use their GPUs.
	// The rest was not measured: on GPUs that cannot measure it, or without an agent.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	IdleGPUMilliHours int64 `json:"idleGPUMilliHours,omitempty"`

	// Entries is the usage by user, type of workload and node pool.
	//
	// +optional
	// +listType=map
	// +listMapKey=user
	// +listMapKey=workloadType
	// +listMapKey=nodePool
	// +kubebuilder:validation:MaxItems=4096
	Entries []UsageEntry `json:"entries,omitempty"`

	// Accounted records until when the usage of each running workload is included in entries.
	// Accounted and entries are written in one request, so that a crash neither loses nor
	// repeats usage.
	//
	// +optional
	// +listType=map
	// +listMapKey=clock
	// +kubebuilder:validation:MaxItems=4096
	Accounted []UsageCursor `json:"accounted,omitempty"`

	// UpdatedAt is when usage was last added, in policy time.
	//
	// +optional
	UpdatedAt *metav1.Time `json:"updatedAt,omitempty"`
}

// UsageEntry is the usage of one user for one type of workload in one node pool.
type UsageEntry struct {
	// User is the name of the user who created the workloads.
	//
	// +required
	// +kubebuilder:validation:MaxLength=1024
	User string `json:"user"`

	// WorkloadType is train, interactive or inference.
	//
	// +required
	// +kubebuilder:validation:Enum=train;interactive;inference
	WorkloadType WorkloadType `json:"workloadType"`

	// NodePool is the name of the node pool.
	//
	// +required
	// +kubebuilder:validation:MaxLength=46
	NodePool string `json:"nodePool"`

	// GPUMilliSeconds is the usage in thousandths of a GPU multiplied by seconds: 3600000 is
	// one GPU for one hour. It is exact, so that many short intervals add up to the same sum
	// as one long interval.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	GPUMilliSeconds int64 `json:"gpuMilliSeconds"`

	// UsedGPUMilliSeconds is the part of gpuMilliSeconds in which the pods used their GPUs. The
	// whole request of a pod counts, however much of it the pod used.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	UsedGPUMilliSeconds int64 `json:"usedGPUMilliSeconds,omitempty"`

	// IdleGPUMilliSeconds is the part of gpuMilliSeconds in which the pods did not use their
	// GPUs. The rest was not measured.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	IdleGPUMilliSeconds int64 `json:"idleGPUMilliSeconds,omitempty"`
}

// UsageCursor records until when the usage of a workload is included.
type UsageCursor struct {
	// Clock is the name of the workload's WorkloadClock.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Clock string `json:"clock"`

	// Until is the end of the included usage, in policy time.
	//
	// +required
	Until metav1.Time `json:"until"`
}

// UsageRecord is a project's GPU usage in one month. Its name is <project>-<month>.
//
// +kubebuilder:object:root=true
// +kubebuilder:ac:generate=false
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=sluse,categories=sluice
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.project + '-' + self.spec.month",message="metadata.name must be <project>-<month>, as spec.project and spec.month say"
// +kubebuilder:printcolumn:name="Project",type=string,JSONPath=`.spec.project`
// +kubebuilder:printcolumn:name="Month",type=string,JSONPath=`.spec.month`
// +kubebuilder:printcolumn:name="Department",type=string,JSONPath=`.status.department`
// +kubebuilder:printcolumn:name="GPU milli-hours",type=integer,JSONPath=`.status.gpuMilliHours`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.usedGPUMilliHours`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idleGPUMilliHours`,priority=1
// +kubebuilder:printcolumn:name="Updated",type=string,JSONPath=`.status.updatedAt`,priority=1
type UsageRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec names the project and the month.
	//
	// +required
	Spec UsageRecordSpec `json:"spec"`

	// Status is the recorded GPU usage.
	//
	// +optional
	Status UsageRecordStatus `json:"status,omitempty,omitzero"`
}

// UsageRecordList is a list of usage records.
//
// +kubebuilder:object:root=true
type UsageRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UsageRecord `json:"items"`
}
