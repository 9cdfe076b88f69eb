// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scheduler names the engine that places a pool's pods.
//
// +kubebuilder:validation:Enum=kube-scheduler;kueue;kai;volcano;yunikorn;koordinator;hami
type Scheduler string

// The engines that Sluice writes for.
const (
	SchedulerKube        Scheduler = "kube-scheduler"
	SchedulerKueue       Scheduler = "kueue"
	SchedulerKAI         Scheduler = "kai"
	SchedulerVolcano     Scheduler = "volcano"
	SchedulerYuniKorn    Scheduler = "yunikorn"
	SchedulerKoordinator Scheduler = "koordinator"
	SchedulerHAMi        Scheduler = "hami"
)

// Sharing says how a fraction of a GPU is realized on a pool's nodes.
//
// +kubebuilder:validation:Enum=None;MIG;MPS;TimeSlicing;KAI;HAMi
type Sharing string

// The ways of sharing a GPU.
const (
	// SharingNone gives out whole GPUs only.
	SharingNone Sharing = "None"
	// SharingMIG cuts a GPU into instances of its own hardware.
	SharingMIG Sharing = "MIG"
	// SharingMPS runs processes side by side under NVIDIA's MPS.
	SharingMPS Sharing = "MPS"
	// SharingTimeSlicing lets the driver take turns between processes.
	SharingTimeSlicing Sharing = "TimeSlicing"
	// SharingKAI is KAI-Scheduler's own fraction, placed by it.
	SharingKAI Sharing = "KAI"
	// SharingHAMi is HAMi's virtual GPU, limited by its library.
	SharingHAMi Sharing = "HAMi"
)

// Compute says whether a share may use the compute that others leave idle.
//
// +kubebuilder:validation:Enum=Fair;Strict
type Compute string

// The rules for a share's compute.
const (
	// ComputeFair lets a share use what is idle.
	ComputeFair Compute = "Fair"
	// ComputeStrict holds a share to its part, idle neighbors or not.
	ComputeStrict Compute = "Strict"
)

// NodePoolSpec is what a platform team says of a set of GPU nodes.
//
// +kubebuilder:validation:XValidation:rule="!(self.scheduler in ['kube-scheduler', 'yunikorn', 'kueue']) || self.sharing in ['None', 'MIG', 'MPS', 'TimeSlicing']",fieldPath=".sharing",messageExpression="'must be None, MIG, MPS or TimeSlicing where the scheduler is ' + self.scheduler"
// +kubebuilder:validation:XValidation:rule="!(self.scheduler in ['kai']) || self.sharing in ['None', 'KAI', 'MIG']",fieldPath=".sharing",messageExpression="'must be None, KAI or MIG where the scheduler is ' + self.scheduler"
// +kubebuilder:validation:XValidation:rule="!(self.scheduler in ['volcano', 'koordinator', 'hami']) || self.sharing in ['None', 'HAMi', 'MIG']",fieldPath=".sharing",messageExpression="'must be None, HAMi or MIG where the scheduler is ' + self.scheduler"
// +kubebuilder:validation:XValidation:rule="self.compute != 'Strict' || self.sharing in ['MPS', 'HAMi']",fieldPath=".compute",messageExpression="'Strict is possible only where sharing is MPS or HAMi; with ' + self.sharing + ' leave it Fair'"
// +kubebuilder:validation:XValidation:rule="!has(self.mig) || self.sharing == 'MIG'",fieldPath=".mig",messageExpression="'is for sharing MIG only; it is ' + self.sharing + ' here'"
type NodePoolSpec struct {
	// NodeSelector are the labels that a node of this pool has, all of them. A node
	// that two pools select belongs to neither.
	//
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['nvidia.com/gpu.product', 'nvidia.com/gpu.count', 'nvidia.com/gpu.replicas', 'nvidia.com/gpu.memory', 'nvidia.com/gpu.sharing-strategy']))",message="must not use a label that GPU feature discovery rewrites when GPUs are shared or cut (nvidia.com/gpu.product, .count, .replicas, .memory, .sharing-strategy): label the nodes yourself, for example sluice.dev/node-pool"
	NodeSelector map[string]string `json:"nodeSelector"`

	// Scheduler is the engine that places this pool's pods.
	//
	// +required
	Scheduler Scheduler `json:"scheduler"`

	// Sharing is how a fraction of a GPU is realized here; None gives out whole GPUs.
	//
	// +optional
	// +kubebuilder:default=None
	Sharing Sharing `json:"sharing,omitempty"`

	// Compute says whether a share may use the compute that others leave idle.
	//
	// +optional
	// +kubebuilder:default=Fair
	Compute Compute `json:"compute,omitempty"`

	// Tolerations are given to every GPU pod that is sent to this pool.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['Exists', 'Equal'])",message="operator must be Exists or Equal"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="effect must be NoSchedule, PreferNoSchedule or NoExecute, or be left out for all of them"
	// +kubebuilder:validation:XValidation:rule="self.all(t, (has(t.operator) && t.operator == 'Exists') ? !has(t.value) || t.value == '' : has(t.key) && t.key != '')",message="operator Exists takes no value, and operator Equal (the default) needs a key"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// MIG says how the GPUs are cut, where sharing is MIG. Without it they are
	// planned from demand.
	//
	// +optional
	MIG *MIGSpec `json:"mig,omitempty"`
}

// NodePoolStatus is what was found of a pool.
type NodePoolStatus struct {
	// ObservedGeneration is the generation of the spec that this status speaks of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Nodes is how many nodes belong to the pool.
	//
	// +optional
	Nodes int32 `json:"nodes,omitempty"`

	// GPUs is how many physical GPUs those nodes have.
	//
	// +optional
	GPUs int32 `json:"gpus,omitempty"`

	// GPUModels are the kinds of GPU in the pool, from the nodes' GPUNodes, else from
	// the labels of GPU feature discovery.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=product
	// +kubebuilder:validation:MaxItems=64
	GPUModels []GPUModel `json:"boards,omitempty"`

	// Settings are what was found in the configuration of the pool's engine and is
	// needed to write for it, such as the name of the label by which it knows its
	// queues; by the names that its policy gives them.
	//
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxProperties=32
	Settings map[string]string `json:"settings,omitempty"`

	// Conditions are Ready, RequirementsMet and Unsupported.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GPUModel is one kind of GPU.
type GPUModel struct {
	// Product is the GPU's name, as GPU feature discovery writes it:
	// NVIDIA-H100-80GB-HBM3.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Product string `json:"product"`

	// MemoryMiB is the memory of one whole GPU in MiB.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB"`

	// GPUs is how many of the pool's GPUs are of this kind.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUs int32 `json:"gpus,omitempty"`

	// Replicas is into how many replicas the device plugin divides each GPU (MPS and
	// time slicing); 0 where it does not, or where that is not known.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`

	// ReplicaResource is the resource that stands for one replica: nvidia.com/gpu, or
	// nvidia.com/gpu.shared where the plugin renames it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	ReplicaResource string `json:"replicaResource,omitempty"`

	// MIGProfiles are the profiles into which the GPU can be cut, where planning is
	// Static those of the layout; empty where it cannot, or where that is not known
	// yet.
	//
	// +optional
	// +nullable
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	MIGProfiles []MIGProfile `json:"migProfiles,omitempty"`
}

// NodePool is a set of GPU nodes that are scheduled, shared and cut in one way.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=slpool,categories=sluice
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 53 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 53 characters: lower-case letters, digits and hyphens"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Scheduler",type=string,JSONPath=`.spec.scheduler`
// +kubebuilder:printcolumn:name="Sharing",type=string,JSONPath=`.spec.sharing`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.gpus`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.status.boards[0].product`
// +kubebuilder:printcolumn:name="Requirements",type=string,JSONPath=`.status.conditions[?(@.type=="RequirementsMet")].status`,priority=1
// +kubebuilder:printcolumn:name="Unsupported",type=string,JSONPath=`.status.conditions[?(@.type=="Unsupported")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted of the pool.
	//
	// +required
	Spec NodePoolSpec `json:"spec"`

	// Status is what was found.
	//
	// +optional
	Status NodePoolStatus `json:"status,omitempty"`
}

// NodePoolList is a list of node pools.
//
// +kubebuilder:object:root=true
type NodePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePool `json:"items"`
}

// PlansMIG reports whether the pool's GPUs are cut by demand: sharing is MIG and
// nobody laid down a layout.
func (s *NodePoolSpec) PlansMIG() bool {
	return s.Sharing == SharingMIG && (s.MIG == nil || s.MIG.Planning != MIGPlanningStatic)
}
