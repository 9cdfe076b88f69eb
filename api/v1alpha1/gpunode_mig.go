// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// MIGPlacement is where instances of a MIG profile may be on a GPU.
type MIGPlacement struct {
	// Profile is the profile, such as 3g.40gb. Its name is that of the resource of NVIDIA's
	// device plugin.
	//
	// +required
	Profile MIGProfile `json:"profile"`

	// Size is the number of memory slices of an instance.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Size int32 `json:"size"`

	// Starts are the memory slices at which an instance may start, counted from 0.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=7
	Starts []int32 `json:"starts"`

	// Max is the number of instances that a GPU can have.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Max int32 `json:"max"`
}

// MIGMode is the MIG mode of a GPU, now and after its next reset.
type MIGMode struct {
	// Current is the present mode.
	//
	// +optional
	Current MIGModeState `json:"current,omitempty"`

	// Pending is the mode after the next reset. It differs from current only if a reset is
	// required.
	//
	// +optional
	Pending MIGModeState `json:"pending,omitempty"`
}

// ObservedInstance is the observed state of one MIG instance.
type ObservedInstance struct {
	// Profile is the instance's profile, such as 3g.40gb.
	//
	// +required
	Profile MIGProfile `json:"profile"`

	// Start is the instance's first memory slice, counted from 0.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	Start int32 `json:"start"`

	// Size is the number of memory slices of the instance.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=8
	Size int32 `json:"size,omitempty"`

	// UUID is the UUID of the MIG device that containers get. It is absent until the device
	// exists.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=80
	UUID string `json:"uuid,omitempty"`

	// State is the state of the instance.
	//
	// +required
	State InstanceState `json:"state"`

	// Foreign is true if neither the spec nor the agent created the instance. Sluice does not
	// change it and plans no instance in its place.
	//
	// +optional
	Foreign bool `json:"foreign,omitempty"`

	// Message explains the states Error and Reclaiming.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// Pod is the pod that uses the instance.
	//
	// +optional
	Pod *PodReference `json:"pod,omitempty"`
}
