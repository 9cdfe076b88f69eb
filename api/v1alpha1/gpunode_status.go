// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InstanceState is the state of a MIG instance.
//
// +kubebuilder:validation:Enum=Creating;Active;Idle;Reclaiming;Destroying;Error
type InstanceState string

// The states of a GPU instance.
const (
	// InstanceCreating means that the agent is creating the instance.
	InstanceCreating InstanceState = "Creating"
	// InstanceActive means that a pod or a process uses the instance.
	InstanceActive InstanceState = "Active"
	// InstanceIdle means that the instance is unused. The agent keeps it until the planner
	// removes it.
	InstanceIdle InstanceState = "Idle"
	// InstanceReclaiming means that the instance is still in use and will be destroyed after
	// that.
	InstanceReclaiming InstanceState = "Reclaiming"
	// InstanceDestroying means that the agent is destroying the instance.
	InstanceDestroying InstanceState = "Destroying"
	// InstanceError means that the last driver call on the instance failed.
	InstanceError InstanceState = "Error"
)

// MIGModeState is the MIG mode of a GPU.
//
// +kubebuilder:validation:Enum=Enabled;Disabled;NotSupported
type MIGModeState string

// The MIG modes.
const (
	MIGModeEnabled      MIGModeState = "Enabled"
	MIGModeDisabled     MIGModeState = "Disabled"
	MIGModeNotSupported MIGModeState = "NotSupported"
)

// GPUHealth is the health of a GPU as the driver reports it.
//
// +kubebuilder:validation:Enum=Healthy;Unhealthy;Lost
type GPUHealth string

// The states of health.
const (
	// GPUHealthy means that driver calls for the GPU succeed.
	GPUHealthy GPUHealth = "Healthy"
	// GPUUnhealthy means that driver calls for the GPU failed, including all retries.
	GPUUnhealthy GPUHealth = "Unhealthy"
	// GPULost means that the driver cannot reach the GPU.
	GPULost GPUHealth = "Lost"
)

// UtilizationSource is the source of a GPU's utilization samples.
//
// +kubebuilder:validation:Enum=NVML;GPM;DCGM;Unavailable
type UtilizationSource string

// The sources of utilization.
const (
	// UtilizationNVML means that the driver measures the utilization of each process. It does so
	// on GPUs that are not in MIG mode.
	UtilizationNVML UtilizationSource = "NVML"
	// UtilizationGPM means that the driver's GPU performance monitoring (GPM) measures the
	// utilization of each MIG instance, on Hopper and newer GPUs.
	UtilizationGPM UtilizationSource = "GPM"
	// UtilizationDCGM means that dcgm-exporter measures the utilization of each MIG instance.
	UtilizationDCGM UtilizationSource = "DCGM"
	// UtilizationUnavailable means that the utilization of the GPU cannot be measured. Its pods
	// never count as idle.
	UtilizationUnavailable UtilizationSource = "Unavailable"
)

// GPUNodeStatus is the observed state of a node's GPUs. Only the node's agent writes it.
type GPUNodeStatus struct {
	// ObservedGeneration is the generation of the spec that the agent last applied or
	// rejected.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// DriverVersion is the version of the GPU driver.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DriverVersion string `json:"driverVersion,omitempty"`

	// Slices summarizes the node's MIG instances: for each profile the used and the total
	// number, such as "1g.5gb 3/8, 3g.20gb 2/2".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Slices string `json:"slices,omitempty"`

	// GPUs are the node's GPUs, ordered by index.
	//
	// +optional
	// +listType=map
	// +listMapKey=uuid
	// +kubebuilder:validation:MaxItems=16
	GPUs []ObservedGPU `json:"gpus,omitempty"`

	// Pods are the pods that use a GPU or were allocated one.
	//
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=512
	Pods []PodUsage `json:"pods,omitempty"`

	// Findings are the pods that use GPU memory or GPUs beyond their allocation, worst first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Findings []Finding `json:"findings,omitempty"`

	// SampledAt is when the usage was sampled, in machine time. All usage in one status is
	// from the same sample.
	//
	// +optional
	SampledAt *metav1.Time `json:"sampledAt,omitempty"`

	// Conditions are Ready, LayoutApplied, ResetRequired, NoPermission and GPULost.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ObservedGPU is the observed state of one GPU.
type ObservedGPU struct {
	// UUID is the GPU's UUID.
	//
	// +required
	UUID GPUUUID `json:"uuid"`

	// Index is the GPU's number on the node. It may change when the node restarts.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Index int32 `json:"index"`

	// Model is the GPU's name as the driver reports it, such as NVIDIA H100 80GB HBM3.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Model string `json:"model,omitempty"`

	// DeviceID is the GPU's PCI device ID, such as 0x233010DE.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	DeviceID string `json:"deviceID,omitempty"`

	// MemoryMiB is the GPU's memory in MiB.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// Health is the GPU's health. Partitions are planned only on Healthy GPUs.
	//
	// +optional
	Health GPUHealth `json:"health,omitempty"`

	// Message explains why the GPU is not Healthy or why the desired partitions cannot be
	// applied.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// UtilizationSource is the source of the GPU's utilization. If it is Unavailable, the pods on
	// the GPU never count as idle.
	//
	// +optional
	UtilizationSource UtilizationSource `json:"utilizationSource,omitempty"`

	// OtherProcesses are the processes on the GPU outside of pods, as of sampledAt: at most 16, those with
	// the most memory first. They take memory and time from pods, and keep the GPU from being repartitioned.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	OtherProcesses []OtherProcess `json:"otherProcesses,omitempty"`

	// OtherProcessesOmitted is the number of further processes outside of pods.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	OtherProcessesOmitted int32 `json:"otherProcessesOmitted,omitempty"`

	// MIG is the GPU's MIG mode.
	//
	// +optional
	MIG MIGMode `json:"mig,omitempty,omitzero"`

	// MIGProfiles are the MIG profiles that the GPU supports.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	MIGProfiles []MIGProfile `json:"migProfiles,omitempty"`

	// MIGPlacements are the places that MIG instances may have, as the driver reports them. The
	// planner uses them instead of its table of GPU models. They are absent if the driver
	// reports none, as before version 550 while MIG mode is off.
	//
	// +optional
	// +listType=map
	// +listMapKey=profile
	// +kubebuilder:validation:MaxItems=32
	MIGPlacements []MIGPlacement `json:"migPlacements,omitempty"`

	// Instances are the MIG instances on the GPU.
	//
	// +optional
	// +listType=map
	// +listMapKey=start
	// +kubebuilder:validation:MaxItems=8
	Instances []ObservedInstance `json:"instances,omitempty"`
}
