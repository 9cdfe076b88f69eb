// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// MIGPlanning selects how the partitions of a pool's GPUs are decided.
//
// +kubebuilder:validation:Enum=Dynamic;Static
type MIGPlanning string

// The ways of planning.
const (
	// MIGPlanningDynamic partitions GPUs by the demand of pending pods.
	MIGPlanningDynamic MIGPlanning = "Dynamic"
	// MIGPlanningStatic partitions GPUs once, by the layout.
	MIGPlanningStatic MIGPlanning = "Static"
)

// MIGProfile is the name of a GPU instance profile, such as 3g.40gb or 1g.10gb+me.
//
// +kubebuilder:validation:MaxLength=24
// +kubebuilder:validation:XValidation:rule="self.matches('^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$')",message="must be a profile of GPU instances, such as 3g.40gb or 1g.10gb+me; compute instances (1c.3g.40gb) are not offered"
type MIGProfile string

// MIGResets sets when a GPU may be reset to change its MIG mode.
//
// +kubebuilder:validation:Enum=Never;WhenIdle;Drain
type MIGResets string

// When GPUs may be reset.
const (
	MIGResetsNever    MIGResets = "Never"
	MIGResetsWhenIdle MIGResets = "WhenIdle"
	MIGResetsDrain    MIGResets = "Drain"
)

// MIGSpec sets how the GPUs of a pool are partitioned into MIG instances.
//
// +kubebuilder:validation:XValidation:rule="self.planning != 'Static' || (has(self.layout) && size(self.layout) > 0)",fieldPath=".layout",message="is required where planning is Static"
// +kubebuilder:validation:XValidation:rule="self.planning != 'Dynamic' || !has(self.layout) || size(self.layout) == 0",fieldPath=".layout",message="is for planning Static only; with Dynamic the layout is planned from demand"
type MIGSpec struct {
	// Planning is Dynamic (the default), which partitions GPUs by the demand of pending pods,
	// or Static, which partitions them by layout.
	//
	// +optional
	// +kubebuilder:default=Dynamic
	Planning MIGPlanning `json:"planning,omitempty"`

	// Resets sets when a GPU may be reset to change its MIG mode. GPUs older than Hopper
	// require a reset. Never (the default) leaves it to the administrator. WhenIdle resets a
	// GPU that no pod and no process uses. Drain keeps new pods off the node until the pods on
	// the GPU have ended, and then resets the GPU. Only this GPU is reset.
	//
	// +optional
	// +kubebuilder:default=Never
	Resets MIGResets `json:"resets,omitempty"`

	// MaxChangesPerHour limits how often the GPUs of one node are repartitioned within an hour.
	// Each change keeps new pods off the node for some seconds. Default 12.
	//
	// +optional
	// +kubebuilder:default=12
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	MaxChangesPerHour *int32 `json:"maxChangesPerHour,omitempty"`

	// Pause stops NVIDIA's GPU clients on a node while the MIG mode of one of its GPUs changes or
	// the GPU is reset, since they keep the GPU open: the device plugin, GPU feature discovery,
	// DCGM, dcgm-exporter and NVSM, as far as the GPU operator deploys them. Sluice sets their
	// labels nvidia.com/gpu.deploy.* on the node from "true" to "paused-by-sluice", after new pods
	// are kept off the node, and back when the change has ended or failed. Default false: the
	// administrator stops the clients.
	//
	// +optional
	Pause bool `json:"pause,omitempty"`

	// Layout lists the partitions of GPUs if planning is Static. The first entry that matches
	// a GPU applies to it. A GPU that no entry matches is not changed.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Layout []MIGLayout `json:"layout,omitempty"`
}

// MIGLayout sets the partitions of some GPUs of a node, in the format of mig-parted.
//
// +kubebuilder:validation:XValidation:rule="self.migEnabled == (has(self.migDevices) && size(self.migDevices) > 0)",fieldPath=".migDevices",message="must name at least one profile, and be left out where migEnabled is false"
type MIGLayout struct {
	// DeviceFilter limits the entry to GPUs with one of these PCI device IDs, such as
	// 0x233010DE. An empty list matches every GPU.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=10
	// +kubebuilder:validation:items:Pattern=`^0x[0-9A-Fa-f]{4}10[Dd][Ee]$`
	DeviceFilter []string `json:"deviceFilter,omitempty"`

	// Devices limits the entry to the GPUs with these indices on their node, counted from 0.
	// An empty list matches every GPU.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=15
	Devices []int32 `json:"devices,omitempty"`

	// MIGEnabled is the MIG mode of the GPUs. If it is false, they are not partitioned.
	// Default: true.
	//
	// +optional
	// +kubebuilder:default=true
	MIGEnabled *bool `json:"migEnabled,omitempty"`

	// MIGDevices is the number of instances of each profile on one GPU, such as {3g.40gb: 1,
	// 1g.10gb: 3}.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 24 && k.matches('^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$'))",message="keys must be profiles of GPU instances, such as 3g.40gb or 1g.10gb+me"
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k] >= 1 && self[k] <= 8)",message="values must be numbers of instances from 1 to 8"
	MIGDevices map[MIGProfile]int32 `json:"migDevices,omitempty"`
}
