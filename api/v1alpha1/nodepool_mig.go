// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// MIGPlanning says who decides how a pool's GPUs are cut.
//
// +kubebuilder:validation:Enum=Dynamic;Static
type MIGPlanning string

// The ways of planning.
const (
	// MIGPlanningDynamic cuts GPUs by the demand of pending pods.
	MIGPlanningDynamic MIGPlanning = "Dynamic"
	// MIGPlanningStatic cuts GPUs as the layout says, and never again.
	MIGPlanningStatic MIGPlanning = "Static"
)

// MIGProfile is the name of a GPU instance profile, such as 3g.40gb or 1g.10gb+me.
//
// +kubebuilder:validation:MaxLength=24
// +kubebuilder:validation:XValidation:rule="self.matches('^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$')",message="must be a profile of GPU instances, such as 3g.40gb or 1g.10gb+me; compute instances (1c.3g.40gb) are not offered"
type MIGProfile string

// MIGResets says when a GPU may be reset to change its MIG mode.
//
// +kubebuilder:validation:Enum=Never;WhenIdle;Drain
type MIGResets string

// When GPUs may be reset.
const (
	MIGResetsNever    MIGResets = "Never"
	MIGResetsWhenIdle MIGResets = "WhenIdle"
	MIGResetsDrain    MIGResets = "Drain"
)

// MIGSpec says how the GPUs of a pool are cut into instances.
//
// +kubebuilder:validation:XValidation:rule="self.planning != 'Static' || (has(self.layout) && size(self.layout) > 0)",fieldPath=".layout",message="is required where planning is Static"
// +kubebuilder:validation:XValidation:rule="self.planning != 'Dynamic' || !has(self.layout) || size(self.layout) == 0",fieldPath=".layout",message="is for planning Static only; with Dynamic the layout is planned from demand"
type MIGSpec struct {
	// Planning is Dynamic (from the demand of pending pods) or Static (as layout says).
	//
	// +optional
	// +kubebuilder:default=Dynamic
	Planning MIGPlanning `json:"planning,omitempty"`

	// Resets says when a GPU may be reset whose MIG mode changes only so: those before
	// Hopper. Never leaves it to the administrator; WhenIdle resets a GPU that no pod
	// and no process has; Drain keeps new pods off the node until the GPU's own have
	// ended by themselves, and resets it then. Only that GPU is reset.
	//
	// +optional
	// +kubebuilder:default=Never
	Resets MIGResets `json:"resets,omitempty"`

	// Layout says what each GPU is cut into, where planning is Static. The first
	// entry that fits a GPU holds for it; a GPU that none fits is left as it is.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Layout []MIGLayout `json:"layout,omitempty"`
}

// MIGLayout is the desired state of some of a node's GPUs, in the form of
// mig-parted's configurations.
//
// +kubebuilder:validation:XValidation:rule="self.migEnabled == (has(self.migDevices) && size(self.migDevices) > 0)",fieldPath=".migDevices",message="must name at least one profile, and be left out where migEnabled is false"
type MIGLayout struct {
	// DeviceFilter limits the entry to boards with one of these PCI device
	// identifiers, such as 0x233010DE. Empty means every board.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=10
	// +kubebuilder:validation:items:Pattern=`^0x[0-9A-Fa-f]{4}10[Dd][Ee]$`
	DeviceFilter []string `json:"deviceFilter,omitempty"`

	// Devices limits the entry to the GPUs with these indices on their node,
	// counted from 0. Empty means every GPU.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=15
	Devices []int32 `json:"devices,omitempty"`

	// MIGEnabled is false where the GPUs are left whole.
	//
	// +optional
	// +kubebuilder:default=true
	MIGEnabled *bool `json:"migEnabled,omitempty"`

	// MIGDevices is how many instances of each profile a GPU is cut into, such as
	// {3g.40gb: 1, 1g.10gb: 3}.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 24 && k.matches('^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$'))",message="keys must be profiles of GPU instances, such as 3g.40gb or 1g.10gb+me"
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k] >= 1 && self[k] <= 8)",message="values must be numbers of instances from 1 to 8"
	MIGDevices map[MIGProfile]int32 `json:"migDevices,omitempty"`
}
