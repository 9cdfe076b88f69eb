// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
)

// PresetType is the type of a preset. It determines the fields of the preset and the right to write it:
// the virtual resource presets/<type in lower case> of sluice.dev.
//
// +kubebuilder:validation:Enum=Environment;DataSource;Compute;Template
type PresetType string

// The types of presets.
const (
	// PresetEnvironment has an image and how it is started and reached.
	PresetEnvironment PresetType = "Environment"
	// PresetDataSource has volumes.
	PresetDataSource PresetType = "DataSource"
	// PresetCompute has requests of GPUs, CPU and memory.
	PresetCompute PresetType = "Compute"
	// PresetTemplate names other presets and may have fields of all types.
	PresetTemplate PresetType = "Template"
)

// PresetName is the name of a preset in the namespace of the workload or in sluice-system.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
type PresetName string

// PresetSpec has the fields of a preset. Each type has its own; a Template may have all.
//
// +kubebuilder:validation:XValidation:rule="self.type in ['Environment', 'Template'] || !has(self.environment)",fieldPath=".environment",messageExpression="'is for the types Environment and Template only; the type is ' + self.type + ' here'"
// +kubebuilder:validation:XValidation:rule="self.type in ['DataSource', 'Template'] || !has(self.dataSource)",fieldPath=".dataSource",messageExpression="'is for the types DataSource and Template only; the type is ' + self.type + ' here'"
// +kubebuilder:validation:XValidation:rule="self.type in ['Compute', 'Template'] || !has(self.compute)",fieldPath=".compute",messageExpression="'is for the types Compute and Template only; the type is ' + self.type + ' here'"
// +kubebuilder:validation:XValidation:rule="self.type == 'Template' || !has(self.workload)",fieldPath=".workload",messageExpression="'is for the type Template only; the type is ' + self.type + ' here'"
// +kubebuilder:validation:XValidation:rule="self.type == 'Template' || !has(self.presets)",fieldPath=".presets",messageExpression="'is for the type Template only; the type is ' + self.type + ' here'"
// +kubebuilder:validation:XValidation:rule="self.type != 'Environment' || has(self.environment)",fieldPath=".environment",message="is required for the type Environment"
// +kubebuilder:validation:XValidation:rule="self.type != 'DataSource' || has(self.dataSource)",fieldPath=".dataSource",message="is required for the type DataSource"
// +kubebuilder:validation:XValidation:rule="self.type != 'Compute' || has(self.compute)",fieldPath=".compute",message="is required for the type Compute"
// +kubebuilder:validation:XValidation:rule="self.type != 'Template' || has(self.environment) || has(self.dataSource) || has(self.compute) || has(self.workload) || has(self.presets)",fieldPath=".presets",message="a Template needs presets, environment, dataSource, compute or workload"
type PresetSpec struct {
	// Type is Environment, DataSource, Compute or Template.
	//
	// +required
	Type PresetType `json:"type"`

	// Description says in one line, of at most 500 characters, what the preset is for.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=500
	// +kubebuilder:validation:Pattern=`^[^\r\n]*$`
	Description string `json:"description,omitempty"`

	// Environment is the image of the container, and how it is started and reached.
	//
	// +optional
	Environment *EnvironmentPreset `json:"environment,omitempty"`

	// DataSource has the volumes of the container.
	//
	// +optional
	DataSource *DataSourcePreset `json:"dataSource,omitempty"`

	// Compute has the GPUs, the CPU and the memory of the container, and the node pools.
	//
	// +optional
	Compute *ComputePreset `json:"compute,omitempty"`

	// Workload has the terms of the whole workload.
	//
	// +optional
	Workload *WorkloadPreset `json:"workload,omitempty"`

	// Presets are the names of the presets that a Template consists of; none of them is a Template. The
	// Template's own fields win over those of the presets that it names. At most 8.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Presets []PresetName `json:"presets,omitempty"`
}

// WorkloadPreset has the terms of a whole workload.
//
// +kubebuilder:validation:MinProperties=1
type WorkloadPreset struct {
	// MaxRuntime ends the workload after this running time, such as 6h. It can only shorten the project's limit.
	//
	// +optional
	MaxRuntime *period.Duration `json:"maxRuntime,omitempty"`

	// Preemptible lets interactive work exceed the guaranteed quota and be preempted first. Training always is
	// preemptible, inference never. Default: false.
	//
	// +optional
	Preemptible bool `json:"preemptible,omitempty"`

	// Parallelism is the number of pods of a Job that run at once, from 1 to 10000.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Parallelism *int32 `json:"parallelism,omitempty"`

	// Completions is the number of pods of a Job that must succeed, from 1 to 100000.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Completions *int32 `json:"completions,omitempty"`
}

// Preset is a reusable part of a submission: an environment, a data source, a compute resource, or a template
// of these. Those in the namespace sluice-system are for all projects. `sluice submit --preset NAME` makes plain
// objects of it; policies decide on these as on all others. No controller reads it.
//
// +kubebuilder:object:root=true
// +kubebuilder:ac:generate=false
// +kubebuilder:resource:scope=Namespaced,shortName=slpreset,categories=sluice
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=`.spec.description`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Preset struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the fields of the preset.
	//
	// +required
	Spec PresetSpec `json:"spec"`
}

// PresetList is a list of presets.
//
// +kubebuilder:object:root=true
type PresetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Preset `json:"items"`
}
