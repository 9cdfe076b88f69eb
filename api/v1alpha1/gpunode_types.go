// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GPUNodeSpec is how a node's GPUs shall be cut. The planner alone writes gpus.
type GPUNodeSpec struct {
	// NodePool is the name of the pool to which the node belongs.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=53
	NodePool string `json:"nodePool,omitempty"`

	// GPUs are the GPUs whose layout is decided. Those that are not listed are
	// left alone.
	//
	// +optional
	// +listType=map
	// +listMapKey=uuid
	// +kubebuilder:validation:MaxItems=16
	GPUs []DesiredGPU `json:"gpus,omitempty"`
}

// DesiredGPU is the layout that one GPU shall have.
//
// +kubebuilder:validation:XValidation:rule="self.migEnabled || !has(self.instances) || size(self.instances) == 0",fieldPath=".instances",message="must be left out where migEnabled is false"
type DesiredGPU struct {
	// UUID is the GPU's identity: GPU-8f6e2a04-....
	//
	// +required
	UUID GPUUUID `json:"uuid"`

	// MIGEnabled is whether the GPU shall be in MIG mode.
	//
	// +required
	MIGEnabled bool `json:"migEnabled"`

	// MayReset lets the agent reset the GPU, and it alone, where its MIG mode changes
	// only so. The planner sets it where the pool's mig.resets allows it and nobody has
	// the GPU.
	//
	// +optional
	MayReset bool `json:"mayReset,omitempty"`

	// Instances are exactly the GPU instances that it shall have.
	//
	// +optional
	// +listType=map
	// +listMapKey=start
	// +kubebuilder:validation:MaxItems=8
	Instances []DesiredInstance `json:"instances,omitempty"`
}

// DesiredInstance is one GPU instance and its place on the board.
type DesiredInstance struct {
	// Profile is the instance's profile: 3g.40gb.
	//
	// +required
	Profile MIGProfile `json:"profile"`

	// Start is its first memory slice, 0 to 7. No two begin at the same.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	Start int32 `json:"start"`
}

// GPUUUID is the identity of a GPU, as the driver gives it.
//
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:validation:Pattern=`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
type GPUUUID string

// GPUNode is the GPUs of one node: how they shall be cut, how they are, and who
// uses them. It has the node's name and goes with it.
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
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.status.driverVersion`,priority=1
type GPUNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is how the GPUs shall be cut.
	//
	// +optional
	Spec GPUNodeSpec `json:"spec,omitempty,omitzero"`

	// Status is what the node's agent found. It alone writes it.
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
	// UID is the pod's identity.
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

// PodUsage is what one pod uses of a node's GPUs.
type PodUsage struct {
	PodReference `json:",inline"`

	// Devices are the GPUs and MIG devices that the pod was given, by UUID.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Devices []string `json:"devices,omitempty"`

	// MemoryMiB is the GPU memory that it holds, in MiB.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// ShareMiB is the GPU memory that it may hold, in MiB.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ShareMiB int64 `json:"shareMiB,omitempty"`

	// LastActive is when one of its processes was last seen computing, in machine
	// time.
	//
	// +optional
	LastActive *metav1.Time `json:"lastActive,omitempty"`
}

// FindingReason says what is wrong with a pod's use of a GPU.
//
// +kubebuilder:validation:Enum=ShareExceeded;NotAllocated
type FindingReason string

// The findings.
const (
	// FindingShareExceeded: the pod holds more memory than its share.
	FindingShareExceeded FindingReason = "ShareExceeded"
	// FindingNotAllocated: the pod uses a GPU that it was not given.
	FindingNotAllocated FindingReason = "NotAllocated"
)

// Finding is a pod that uses what is not its own.
type Finding struct {
	// PodUID is the pod.
	//
	// +required
	PodUID types.UID `json:"podUID"`

	// Reason is what is wrong.
	//
	// +required
	Reason FindingReason `json:"reason"`

	// Since is when it was first seen, in machine time.
	//
	// +required
	Since metav1.Time `json:"since"`
}
