// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scheduler is the scheduler or queue controller that places the pods of a pool.
//
// +kubebuilder:validation:Enum=kube-scheduler;kueue;kai;volcano;yunikorn;koordinator;hami
type Scheduler string

// The schedulers that Sluice supports.
const (
	SchedulerKube        Scheduler = "kube-scheduler"
	SchedulerKueue       Scheduler = "kueue"
	SchedulerKAI         Scheduler = "kai"
	SchedulerVolcano     Scheduler = "volcano"
	SchedulerYuniKorn    Scheduler = "yunikorn"
	SchedulerKoordinator Scheduler = "koordinator"
	SchedulerHAMi        Scheduler = "hami"
)

// CountsProjectsAlone reports whether nothing counts the projects of a department together: the
// scheduler has no queues of departments, and the API server counts the pods of each namespace.
func (s Scheduler) CountsProjectsAlone() bool { return s == SchedulerKube || s == SchedulerYuniKorn }

// Sharing is the technique by which several pods share a GPU of a pool.
//
// +kubebuilder:validation:Enum=None;MIG;MPS;TimeSlicing;KAI;HAMi
type Sharing string

// The ways of sharing a GPU.
const (
	// SharingNone allocates whole GPUs only.
	SharingNone Sharing = "None"
	// SharingMIG partitions a GPU into MIG instances.
	SharingMIG Sharing = "MIG"
	// SharingMPS runs several processes on a GPU under NVIDIA MPS.
	SharingMPS Sharing = "MPS"
	// SharingTimeSlicing runs several processes on a GPU in time slices of the driver.
	SharingTimeSlicing Sharing = "TimeSlicing"
	// SharingKAI uses the GPU fractions of KAI-Scheduler.
	SharingKAI Sharing = "KAI"
	// SharingHAMi uses the virtual GPUs of HAMi, whose library enforces their limits.
	SharingHAMi Sharing = "HAMi"
)

// Compute sets whether a pod may use compute of its GPU that other pods leave idle.
//
// +kubebuilder:validation:Enum=Fair;Strict
type Compute string

// The rules for compute.
const (
	// ComputeFair lets a pod use idle compute.
	ComputeFair Compute = "Fair"
	// ComputeStrict limits a pod to its share at all times.
	ComputeStrict Compute = "Strict"
)

// CPUPods sets whether pods of projects without GPUs may run on the nodes of a pool.
//
// +kubebuilder:validation:Enum=Allow;Refuse
type CPUPods string

// The rules for pods without GPUs.
const (
	// CPUPodsAllow leaves the place of these pods to the scheduler.
	CPUPodsAllow CPUPods = "Allow"
	// CPUPodsRefuse keeps these pods off the nodes of the pool.
	CPUPodsRefuse CPUPods = "Refuse"
)

// NodePoolSpec sets the nodes of a pool, its scheduler and how its GPUs are shared.
//
// +kubebuilder:validation:XValidation:rule="!(self.scheduler in ['kube-scheduler', 'yunikorn', 'kueue']) || self.sharing in ['None', 'MIG', 'MPS', 'TimeSlicing']",fieldPath=".sharing",messageExpression="'must be None, MIG, MPS or TimeSlicing where the scheduler is ' + self.scheduler"
// +kubebuilder:validation:XValidation:rule="!(self.scheduler in ['kai']) || self.sharing in ['None', 'KAI', 'MIG']",fieldPath=".sharing",messageExpression="'must be None, KAI or MIG where the scheduler is ' + self.scheduler"
// +kubebuilder:validation:XValidation:rule="!(self.scheduler in ['volcano', 'koordinator', 'hami']) || self.sharing in ['None', 'HAMi', 'MIG']",fieldPath=".sharing",messageExpression="'must be None, HAMi or MIG where the scheduler is ' + self.scheduler"
// +kubebuilder:validation:XValidation:rule="self.compute != 'Strict' || self.sharing in ['MPS', 'HAMi']",fieldPath=".compute",messageExpression="'Strict requires sharing MPS or HAMi; with ' + self.sharing + ' it must be Fair'"
// +kubebuilder:validation:XValidation:rule="self.burst != 'Allow' || self.sharing in ['TimeSlicing', 'KAI']",fieldPath=".burst",messageExpression="'Allow requires sharing TimeSlicing or KAI, under which a share has no fixed size; with ' + self.sharing + ' it must be Refuse'"
// +kubebuilder:validation:XValidation:rule="!has(self.mig) || self.sharing == 'MIG'",fieldPath=".mig",messageExpression="'is for sharing MIG only; it is ' + self.sharing + ' here'"
// +kubebuilder:validation:XValidation:rule="self.cpuPods != 'Refuse' || size(self.nodeSelector) == 1",fieldPath=".cpuPods",message="Refuse needs a nodeSelector with a single label, by which pods can avoid the nodes: label them, for example with sluice.dev/node-pool, and select them by this label alone"
// +kubebuilder:validation:XValidation:rule="!has(self.resources) || size(self.resources) == 0 || self.sharing == 'None' && self.scheduler in ['kube-scheduler', 'yunikorn', 'kueue']",fieldPath=".resources",message="needs sharing None, and kube-scheduler, yunikorn or kueue as scheduler: other schedulers count GPUs by names of their own"
type NodePoolSpec struct {
	// NodeSelector selects the nodes that have all of these labels. A node that two pools
	// select belongs to neither, and both pools report it.
	//
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['nvidia.com/gpu.product', 'nvidia.com/gpu.count', 'nvidia.com/gpu.replicas', 'nvidia.com/gpu.memory', 'nvidia.com/gpu.sharing-strategy']))",message="must not use a label that GPU feature discovery rewrites when GPUs are shared or partitioned (nvidia.com/gpu.product, .count, .replicas, .memory, .sharing-strategy): label the nodes yourself, for example sluice.dev/node-pool"
	NodeSelector map[string]string `json:"nodeSelector"`

	// Scheduler is the scheduler that places this pool's pods.
	//
	// +required
	Scheduler Scheduler `json:"scheduler"`

	// Sharing is the technique by which several pods share a GPU. It must be one that the
	// scheduler supports. None (the default) allocates whole GPUs only.
	//
	// +optional
	// +kubebuilder:default=None
	Sharing Sharing `json:"sharing,omitempty"`

	// Compute sets whether a pod may use compute of its GPU that other pods leave idle: Fair
	// (the default) or Strict. Strict requires sharing MPS or HAMi.
	//
	// +optional
	// +kubebuilder:default=Fair
	Compute Compute `json:"compute,omitempty"`

	// Burst sets whether a pod may set a limit of GPU memory above its share: Refuse (the
	// default) or Allow. Allow requires sharing TimeSlicing or KAI.
	//
	// +optional
	// +kubebuilder:default=Refuse
	Burst Burst `json:"burst,omitempty"`

	// DriverReservePercent is the part of each GPU's memory that the driver reserves for
	// itself, in percent. Shares are parts of the rest. The default is 3.
	//
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=25
	DriverReservePercent *int32 `json:"driverReservePercent,omitempty"`

	// DriverMemoryLimits sets whether Sluice writes the variables by which the driver limits the
	// GPU memory of a container: Auto (the default) or Never. Auto writes them with sharing
	// TimeSlicing and KAI if all nodes have a driver of version 615 or newer.
	//
	// +optional
	// +kubebuilder:default=Auto
	DriverMemoryLimits DriverMemoryLimits `json:"driverMemoryLimits,omitempty"`

	// TopologyKeys are further node labels by which pods of the pool's projects may require pod
	// anti-affinity, such as that of a block of nodes. The labels of a node, a zone and a rack
	// (kubernetes.io/hostname, topology.kubernetes.io/zone, topology.kubernetes.io/rack) are allowed
	// without it. By a label that many nodes share, one pod keeps others off all of them.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	TopologyKeys []string `json:"topologyKeys,omitempty"`

	// Resources are the names under which the pool's nodes offer GPUs, beyond those that Sluice
	// knows: a device plugin can rename the GPUs of NVIDIA, and other vendors have names of their own.
	// A pod that requests one of them is charged its GPUs, in the pools that name it. A pod that
	// requests a whole GPU by an annotation gets the first that counts as one GPU. It requires sharing
	// None.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Resources []GPUResource `json:"resources,omitempty"`

	// Tolerations are added to every GPU pod that is assigned to this pool.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['Exists', 'Equal'])",message="operator must be Exists or Equal"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="effect must be NoSchedule, PreferNoSchedule or NoExecute, or be left out for all of them"
	// +kubebuilder:validation:XValidation:rule="self.all(t, (has(t.operator) && t.operator == 'Exists') ? !has(t.value) || t.value == '' : has(t.key) && t.key != '')",message="operator Exists takes no value, and operator Equal (the default) needs a key"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// CPUPods sets whether pods of projects without GPUs may run on the pool's nodes: Allow (the
	// default) or Refuse. Refuse needs a nodeSelector with a single label. It applies to new
	// pods, except those of DaemonSets and those outside projects. KAI-Scheduler does not preempt
	// these pods: Refuse keeps its nodes free for pods with GPUs.
	//
	// +optional
	// +kubebuilder:default=Allow
	CPUPods CPUPods `json:"cpuPods,omitempty"`

	// MIG sets how the GPUs are partitioned if sharing is MIG. Without it partitions are
	// planned from demand.
	//
	// +optional
	MIG *MIGSpec `json:"mig,omitempty"`

	// Preemption sets when running pods give way to a pod with a guarantee whose MIG profile no node
	// offers. It has an effect where MIG partitions are planned from demand.
	//
	// +optional
	Preemption *PreemptionSpec `json:"preemption,omitempty"`

	// ResourceShares sets how much CPU, memory, ephemeral storage and huge pages pods with GPUs may
	// request, so that no pod with a few GPUs of a node keeps the others idle. Default: their GPUs'
	// share of a node, or 1.5 times this share if they can be preempted.
	//
	// +optional
	// +kubebuilder:default={}
	ResourceShares ResourceShares `json:"resourceShares,omitempty"`
}

// NodePoolStatus is the observed state of a pool.
type NodePoolStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Nodes is the number of nodes in the pool.
	//
	// +optional
	Nodes int32 `json:"nodes,omitempty"`

	// GPUs is the number of physical GPUs on these nodes.
	//
	// +optional
	GPUs int32 `json:"gpus,omitempty"`

	// Products are the GPU models in the pool. They come from the GPUNodes, or else from the
	// node labels of GPU feature discovery.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Products []GPUModel `json:"products,omitempty"`

	// NodeKinds are the kinds of the pool's nodes, by GPU model and number of GPUs, with what they
	// offer for each GPU. Nodes whose GPUs are unknown are left out.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=product
	// +listMapKey=gpus
	// +kubebuilder:validation:MaxItems=256
	NodeKinds []NodeKind `json:"nodeKinds,omitempty"`

	// UnlistedResources are the extended resources that nodes of the pool offer, or offered in the last
	// 24 hours, and that no list knows: they can be GPUs. Pods of projects that request them are
	// rejected.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	UnlistedResources []UnlistedResource `json:"unlistedResources,omitempty"`

	// Taints are the taints of effect NoSchedule or NoExecute that all nodes of the pool have, without
	// those by which Kubernetes and Sluice keep pods off a node for some time. At most 16.
	//
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []corev1.Taint `json:"taints,omitempty"`

	// DriverVersion is the oldest GPU driver of the pool's nodes, from their GPUNodes. It is empty
	// if that of a node with GPUs is unknown.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DriverVersion string `json:"driverVersion,omitempty"`

	// Settings are values that the pool's policy reads from the scheduler's configuration,
	// such as the key of its queue label.
	//
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxProperties=32
	Settings map[string]string `json:"settings,omitempty"`

	// Conditions are Ready, RequirementsMet, Planned, UnlistedResources, Unsupported and StartTimeoutsHeld.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GPUModel is a GPU model and the number of its GPUs in a pool.
type GPUModel struct {
	// Name is the product name that GPU feature discovery reports, such as
	// NVIDIA-H100-80GB-HBM3.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// MemoryMiB is the memory of one whole GPU in MiB, or 0 if it is unknown.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB"`

	// GPUs is the number of the pool's GPUs of this model.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUs int32 `json:"gpus,omitempty"`

	// Replicas is the number of replicas into which the device plugin divides each GPU with
	// MPS or time slicing. It is 0 if GPUs are not divided or the number is unknown.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`

	// ReplicaResource is the resource name of one replica: nvidia.com/gpu, or
	// nvidia.com/gpu.shared if the device plugin renames it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	ReplicaResource string `json:"replicaResource,omitempty"`

	// MIGProfiles are the MIG profiles that the GPUs offer. With planning Static they are the
	// profiles of the layout. The list is empty if the GPU does not support MIG or its
	// profiles are unknown.
	//
	// +optional
	// +nullable
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	MIGProfiles []MIGProfile `json:"migProfiles,omitempty"`
}

// NodePool is a set of GPU nodes with the same scheduler and the same way of sharing GPUs.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=slpool,categories=sluice
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 46 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 46 characters: lower-case letters, digits and hyphens"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Scheduler",type=string,JSONPath=`.spec.scheduler`
// +kubebuilder:printcolumn:name="Sharing",type=string,JSONPath=`.spec.sharing`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.gpus`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.status.products[0].name`
// +kubebuilder:printcolumn:name="Requirements",type=string,JSONPath=`.status.conditions[?(@.type=="RequirementsMet")].status`,priority=1
// +kubebuilder:printcolumn:name="Unsupported",type=string,JSONPath=`.status.conditions[?(@.type=="Unsupported")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec sets the nodes of the pool, its scheduler and how its GPUs are shared.
	//
	// +required
	Spec NodePoolSpec `json:"spec"`

	// Status is the observed state of the pool.
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

// PlansMIG reports whether the pool's GPUs are partitioned on demand: sharing is MIG and planning
// is not Static.
func (s *NodePoolSpec) PlansMIG() bool {
	return s.Sharing == SharingMIG && (s.MIG == nil || s.MIG.Planning != MIGPlanningStatic)
}
