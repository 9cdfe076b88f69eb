// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InstanceState is where a GPU instance is in its life.
//
// +kubebuilder:validation:Enum=Creating;Active;Idle;Reclaiming;Destroying;Error
type InstanceState string

// The states of a GPU instance.
const (
	// InstanceCreating: the agent is making it.
	InstanceCreating InstanceState = "Creating"
	// InstanceActive: a pod or a process has it.
	InstanceActive InstanceState = "Active"
	// InstanceIdle: nobody has it; it is kept until its room is needed.
	InstanceIdle InstanceState = "Idle"
	// InstanceReclaiming: it shall go, and is still in use.
	InstanceReclaiming InstanceState = "Reclaiming"
	// InstanceDestroying: the agent is taking it away.
	InstanceDestroying InstanceState = "Destroying"
	// InstanceError: the last call on it failed.
	InstanceError InstanceState = "Error"
)

// MIGModeState is a GPU's MIG mode.
//
// +kubebuilder:validation:Enum=Enabled;Disabled;NotSupported
type MIGModeState string

// The MIG modes.
const (
	MIGModeEnabled      MIGModeState = "Enabled"
	MIGModeDisabled     MIGModeState = "Disabled"
	MIGModeNotSupported MIGModeState = "NotSupported"
)

// GPUHealth says whether the driver answers for a GPU.
//
// +kubebuilder:validation:Enum=Healthy;Unhealthy;Lost
type GPUHealth string

// The states of health.
const (
	// GPUHealthy: the driver answers.
	GPUHealthy GPUHealth = "Healthy"
	// GPUUnhealthy: calls on it failed more often than they were tried again.
	GPUUnhealthy GPUHealth = "Unhealthy"
	// GPULost: the driver does not reach it any more.
	GPULost GPUHealth = "Lost"
)

// UtilizationSource says where a node's figures of use come from.
//
// +kubebuilder:validation:Enum=NVML;Unavailable
type UtilizationSource string

// The sources of utilization.
const (
	// UtilizationNVML is the driver's own sampling.
	UtilizationNVML UtilizationSource = "NVML"
	// UtilizationUnavailable: nothing on this node can tell whether a GPU is used,
	// so no pod on it ever counts as idle.
	UtilizationUnavailable UtilizationSource = "Unavailable"
)

// GPUNodeStatus is what a node's agent found.
type GPUNodeStatus struct {
	// ObservedGeneration is the generation of the spec that was last carried out,
	// or found impossible.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// DriverVersion is the version of the GPU driver.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DriverVersion string `json:"driverVersion,omitempty"`

	// Slices are the node's GPU instances in a line, how many of each profile are in
	// use of how many there are: "1g.5gb 3/8, 3g.20gb 2/2".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Slices string `json:"slices,omitempty"`

	// GPUs are the node's GPUs, by index.
	//
	// +optional
	// +listType=map
	// +listMapKey=uuid
	// +kubebuilder:validation:MaxItems=16
	GPUs []ObservedGPU `json:"gpus,omitempty"`

	// Pods are the pods that use a GPU, or were given one.
	//
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=512
	Pods []PodUsage `json:"pods,omitempty"`

	// Findings are the pods that use what is not theirs, worst first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Findings []Finding `json:"findings,omitempty"`

	// SampledAt is when the figures of use were read, in machine time. One write
	// carries one whole sample.
	//
	// +optional
	SampledAt *metav1.Time `json:"sampledAt,omitempty"`

	// UtilizationSource says where lastActive comes from; where it is Unavailable
	// nobody may be called idle.
	//
	// +optional
	UtilizationSource UtilizationSource `json:"utilizationSource,omitempty"`

	// Conditions are Ready, ResetRequired, NoPermission and GPULost.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ObservedGPU is one GPU as it is.
type ObservedGPU struct {
	// UUID is the GPU's identity.
	//
	// +required
	UUID GPUUUID `json:"uuid"`

	// Index is its number on the node. It may change when the node restarts.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Index int32 `json:"index"`

	// Model is its name, as the driver says it: NVIDIA H100 80GB HBM3.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Model string `json:"model,omitempty"`

	// DeviceID is its PCI device identifier, such as 0x233010DE.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	DeviceID string `json:"deviceID,omitempty"`

	// MemoryMiB is its memory in MiB.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// Health says whether the driver answers for it. Nothing is planned on a GPU that
	// is not Healthy.
	//
	// +optional
	Health GPUHealth `json:"health,omitempty"`

	// Message says why, where it is not Healthy or cannot be cut as the spec asks.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// MIG is its MIG mode.
	//
	// +optional
	MIG MIGMode `json:"mig,omitempty,omitzero"`

	// MIGProfiles are the profiles into which it can be cut.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	MIGProfiles []MIGProfile `json:"migProfiles,omitempty"`

	// Instances are its GPU instances.
	//
	// +optional
	// +listType=map
	// +listMapKey=start
	// +kubebuilder:validation:MaxItems=8
	Instances []ObservedInstance `json:"instances,omitempty"`
}

// MIGMode is a GPU's MIG mode, now and after its next reset.
type MIGMode struct {
	// Current is the mode that the GPU is in.
	//
	// +optional
	Current MIGModeState `json:"current,omitempty"`

	// Pending is the mode that it takes when it is reset. It differs from current
	// only where a reset is required.
	//
	// +optional
	Pending MIGModeState `json:"pending,omitempty"`
}

// ObservedInstance is one GPU instance as it is.
type ObservedInstance struct {
	// Profile is its profile: 3g.40gb.
	//
	// +required
	Profile MIGProfile `json:"profile"`

	// Start is its first memory slice.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	Start int32 `json:"start"`

	// Size is how many memory slices it has.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=8
	Size int32 `json:"size,omitempty"`

	// UUID is the MIG device that containers are given; absent until it exists.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=80
	UUID string `json:"uuid,omitempty"`

	// State is where the instance is in its life.
	//
	// +required
	State InstanceState `json:"state"`

	// Foreign tells that neither the spec nor the agent has made it. It is left alone
	// and nothing is planned in its place.
	//
	// +optional
	Foreign bool `json:"foreign,omitempty"`

	// Message says why, where the state is Error or Reclaiming.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// Pod is the pod that has it.
	//
	// +optional
	Pod *PodReference `json:"pod,omitempty"`
}
