// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// EnvironmentPreset is an image, and how its container is started and reached.
//
// +kubebuilder:validation:MinProperties=1
type EnvironmentPreset struct {
	// Image is the image of the container, such as quay.io/jupyter/base-notebook:2026-10-01.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\S+$`
	Image string `json:"image,omitempty"`

	// LocalImage starts the image that the node has, and never pulls it. Default: false.
	//
	// +optional
	LocalImage bool `json:"localImage,omitempty"`

	// WorkloadType is interactive, train or inference. Default: train.
	//
	// +optional
	// +kubebuilder:validation:Enum=train;interactive;inference
	WorkloadType WorkloadType `json:"workloadType,omitempty"`

	// Command replaces the image's entry point. At most 64 words of at most 4096 characters.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	Command []string `json:"command,omitempty"`

	// Args are the arguments of the command or of the entry point. At most 64 of at most 4096 characters.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	Args []string `json:"args,omitempty"`

	// WorkingDir is the folder in which the command starts, an absolute path of the container.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^/`
	WorkingDir string `json:"workingDir,omitempty"`

	// Env are variables of the container. All members of the projects that use the preset can read them, so
	// that secrets belong into a Secret. At most 64.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Env []PresetVariable `json:"env,omitempty"`

	// Ports are the ports of the container and of the Service in front of it. At most 32.
	//
	// +optional
	// +listType=map
	// +listMapKey=port
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Ports []PresetPort `json:"ports,omitempty"`

	// ServiceType says how the ports are reached: portforward, nodeport, ingress or loadbalancer, as the
	// department allows. Default: portforward.
	//
	// +optional
	// +kubebuilder:validation:Enum=portforward;nodeport;ingress;loadbalancer
	ServiceType string `json:"serviceType,omitempty"`
}

// PresetVariable is a variable of a container.
type PresetVariable struct {
	// Name is the name of the variable.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z][-._a-zA-Z0-9]*$`
	Name string `json:"name"`

	// Value is the value, which may be empty. At most 4096 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`
}

// PresetPort is a port of a container, and of the Service in front of it.
type PresetPort struct {
	// Port is the port of the Service, from 1 to 65535.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// TargetPort is the port of the container, from 1 to 65535. Default: port.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	TargetPort int32 `json:"targetPort,omitempty"`
}

// ComputePreset has the GPUs, the CPU and the memory of a container, and the node pools.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="(has(self.gpu) ? 1 : 0) + (has(self.gpuMemory) ? 1 : 0) + (has(self.migProfile) ? 1 : 0) < 2",message="must have at most one of gpu, gpuMemory and migProfile"
type ComputePreset struct {
	// GPU is a whole number of GPUs, or a part of one such as 0.5, in steps of a thousandth. At most 1000.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000 : isQuantity(self) && [quantity(self).asApproximateFloat() * 1000.0].all(m, m >= 0.0 && m <= 1000000.0 && [int(m + 0.5)].all(r, m - double(r) < 0.000001 && double(r) - m < 0.000001 && (r <= 1000 || r % 1000 == 0)))",message="must be a whole number of GPUs up to 1000, or a part of one in steps of a thousandth, such as 0.5"
	GPU *resource.Quantity `json:"gpu,omitempty"`

	// GPUMemory is memory of one GPU in bytes, such as 8G, instead of gpu. It is more than 0 and less than 1Ti.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 && self < 1099511627776 : isQuantity(self) && [quantity(self).asApproximateFloat()].all(q, q > 0.0 && q < 1099511627776.0)",message="must be an amount of memory, more than 0 and less than 1Ti, such as 8G"
	GPUMemory *resource.Quantity `json:"gpuMemory,omitempty"`

	// MIGProfile is one MIG instance, such as 3g.40gb, instead of gpu.
	//
	// +optional
	MIGProfile MIGProfile `json:"migProfile,omitempty"`

	// CPU are the requested cores, such as 4 or 500m. It is more than 0 and less than 10 million.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=12
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 && self < 10000000 : isQuantity(self) && [quantity(self).asApproximateFloat()].all(q, q > 0.0 && q < 10000000.0)",message="must be a number of cores, more than 0 and less than 10 million, such as 4 or 500m"
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// Memory is the requested memory in bytes, such as 64Gi. It is more than 0 and less than 1Ei.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 && self < 1152921504606846976 : isQuantity(self) && [quantity(self).asApproximateFloat()].all(q, q > 0.0 && q < 1152921504606846976.0)",message="must be an amount of memory, more than 0 and less than 1Ei, such as 64Gi"
	Memory *resource.Quantity `json:"memory,omitempty"`

	// LargeShm mounts /dev/shm in memory, without the container runtime's limit of 64 MiB. Default: false.
	//
	// +optional
	LargeShm bool `json:"largeShm,omitempty"`

	// NodePools are node pools of the project, in the order of preference. At most 16.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=46
	NodePools []string `json:"nodePools,omitempty"`
}
