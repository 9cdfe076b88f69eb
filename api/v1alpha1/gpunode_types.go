// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GPUNodeSpec is the desired partitioning of a node's GPUs. Only the planner writes gpus.
type GPUNodeSpec struct {
	// NodePool is the name of the pool to which the node belongs.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=46
	NodePool string `json:"nodePool,omitempty"`

	// GPUs are the GPUs with a desired layout. The agent does not change GPUs that are not
	// listed.
	//
	// +optional
	// +listType=map
	// +listMapKey=uuid
	// +kubebuilder:validation:MaxItems=16
	GPUs []DesiredGPU `json:"gpus,omitempty"`
}

// DesiredGPU is the desired layout of one GPU.
//
// +kubebuilder:validation:XValidation:rule="self.migEnabled || !has(self.instances) || size(self.instances) == 0",fieldPath=".instances",message="must be left out where migEnabled is false"
type DesiredGPU struct {
	// UUID is the GPU's UUID, such as GPU-8f6e2a04-....
	//
	// +required
	UUID GPUUUID `json:"uuid"`

	// MIGEnabled is the desired MIG mode of the GPU.
	//
	// +required
	MIGEnabled bool `json:"migEnabled"`

	// MayReset allows the agent to reset this GPU if its MIG mode cannot change otherwise.
	// The planner sets it if mig.resets of the pool allows resets and the GPU is unused.
	//
	// +optional
	MayReset bool `json:"mayReset,omitempty"`

	// Instances are exactly the MIG instances that the GPU must have.
	//
	// +optional
	// +listType=map
	// +listMapKey=start
	// +kubebuilder:validation:MaxItems=8
	Instances []DesiredInstance `json:"instances,omitempty"`
}

// DesiredInstance is a desired MIG instance and its place on the GPU.
type DesiredInstance struct {
	// Profile is the instance's profile, such as 3g.40gb.
	//
	// +required
	Profile MIGProfile `json:"profile"`

	// Start is the instance's first memory slice, from 0 to 7. It must be unique on the GPU.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	Start int32 `json:"start"`
}

// GPUUUID is the UUID of a GPU, as the driver reports it.
//
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:validation:Pattern=`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
type GPUUUID string

// GPUNode is the state of one node's GPUs: the desired partitions, the observed partitions and
// the pods that use them. It has the node's name and is deleted with the node.
//
// +kubebuilder:object:root=true
// +kubebuilder:ac:generate=false
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=slgn,categories=sluice
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.nodePool`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Layout",type=string,JSONPath=`.status.conditions[?(@.type=="LayoutApplied")].reason`
// +kubebuilder:printcolumn:name="Slices",type=string,JSONPath=`.status.slices`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.status.gpus[0].model`
// +kubebuilder:printcolumn:name="Sampled",type=date,JSONPath=`.status.sampledAt`
// +kubebuilder:printcolumn:name="Findings",type=string,JSONPath=`.status.findings[*].reason`,priority=1
// +kubebuilder:printcolumn:name="Utilization",type=string,JSONPath=`.status.gpus[*].utilizationSource`,priority=1
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.status.driverVersion`,priority=1
type GPUNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired partitioning of the GPUs.
	//
	// +optional
	Spec GPUNodeSpec `json:"spec,omitempty,omitzero"`

	// Status is the observed state of the GPUs. Only the node's agent writes it.
	//
	// +optional
	Status GPUNodeStatus `json:"status,omitempty,omitzero"`
}

// GPUNodeList is a list of GPU nodes.
//
// +kubebuilder:object:root=true
type GPUNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GPUNode `json:"items"`
}

// PodReference names a pod.
type PodReference struct {
	// UID is the pod's UID.
	//
	// +required
	UID types.UID `json:"uid"`

	// Namespace is the pod's namespace.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// Name is the pod's name.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PodUsage is the GPU usage of one pod on a node.
type PodUsage struct {
	PodReference `json:",inline"`

	// Devices are the UUIDs of the GPUs and MIG devices that were allocated to the pod.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Devices []string `json:"devices,omitempty"`

	// MemoryMiB is the GPU memory that the pod's processes use, in MiB. It is absent if the
	// memory of any of them is unknown.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB *int64 `json:"memoryMiB,omitempty"`

	// ShareMiB is the GPU memory that the pod may use on all of its devices together, in MiB: the
	// memory of its MIG devices and of GPUs that it has alone, and its share of other GPUs without
	// what the driver reserves. It is absent if the share on any device is unknown.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ShareMiB int64 `json:"shareMiB,omitempty"`

	// LimitMiB is the GPU memory up to which the pod may burst on all of its devices together, in
	// MiB. It is absent if the pod may not use more than its share.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	LimitMiB int64 `json:"limitMiB,omitempty"`

	// LastActive is when the pod last used its GPUs, in machine time. A pod that has not used
	// them yet has the time of its first sample. It is absent if the pod may use a GPU whose
	// utilization cannot be measured: the pod does not count as idle then.
	//
	// +optional
	LastActive *metav1.Time `json:"lastActive,omitempty"`
}

// FindingReason is the kind of violation by a pod.
//
// +kubebuilder:validation:Enum=ShareExceeded;NotAllocated;MemoryConflict
type FindingReason string

// The findings.
const (
	// FindingShareExceeded means that the pod uses more GPU memory than its share, or than its limit
	// if it may burst. Lifecycle warns of it and then evicts the pod.
	FindingShareExceeded FindingReason = "ShareExceeded"
	// FindingNotAllocated means that the pod uses a GPU that was not allocated to it. Lifecycle only
	// warns of it.
	FindingNotAllocated FindingReason = "NotAllocated"
	// FindingMemoryConflict means that the pod bursts above its share while the GPU has less free
	// memory than other pods were promised and do not use yet. Of the pods that burst on the GPU it
	// has the lowest priority, and among these it was idle longest. Lifecycle warns of it and then
	// evicts the pod.
	FindingMemoryConflict FindingReason = "MemoryConflict"
)

// Finding is a pod that uses a GPU or GPU memory that was not allocated to it.
type Finding struct {
	// PodUID is the pod's UID.
	//
	// +required
	PodUID types.UID `json:"podUID"`

	// Reason is the kind of violation.
	//
	// +required
	Reason FindingReason `json:"reason"`

	// Since is when the violation was first observed, in machine time. The agent reports it after
	// 60 s without a gap.
	//
	// +required
	Since metav1.Time `json:"since"`

	// Device is the UUID of the GPU or MIG device.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=80
	Device string `json:"device,omitempty"`

	// ExcessMiB is the memory on the device, in MiB: above the share or limit (ShareExceeded), above
	// the share (MemoryConflict), or all that the pod uses (NotAllocated). It is as old as
	// memoryMiB of the pods, and absent if it is unknown.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ExcessMiB int64 `json:"excessMiB,omitempty"`
}
