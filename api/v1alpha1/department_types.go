// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DepartmentSpec sets the quota of a department and the rules for its projects.
type DepartmentSpec struct {
	// DisplayName is the department's name in mails and tables.
	//
	// +optional
	DisplayName DisplayName `json:"displayName,omitempty"`

	// Contacts receive the mail of a project that has no reachable owner.
	//
	// +optional
	// +listType=map
	// +listMapKey=email
	// +kubebuilder:validation:MaxItems=20
	Contacts []Contact `json:"contacts,omitempty"`

	// NodePools are the node pools that the department may use, in order of preference, with
	// the GPU quota in each.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	NodePools []PoolQuota `json:"nodePools,omitempty"`

	// Oversubscription sets whether the guarantees of the department's projects may add up to
	// more than the department's own guarantee. It applies to the GPUs of each node pool, to
	// CPU and to memory. In node pools of kube-scheduler and YuniKorn, which count each project
	// alone, it also applies to the limits. Deny (the default) rejects such a project and reports
	// the amounts. With Allow, the API server admits pods above the department's limit in these
	// node pools, and lifecycle ends the newest of them (condition LimitExceeded).
	//
	// +optional
	// +kubebuilder:default=Deny
	Oversubscription Oversubscription `json:"oversubscription,omitempty"`

	// Resources limits the CPU and memory that the pods of all projects of the department may
	// request at the same time.
	//
	// +optional
	Resources ResourceQuota `json:"resources,omitempty,omitzero"`

	// Objects limits the number of objects in the namespace of each project, such as pods: 200 or count/jobs.batch: 100.
	// Defaults, each if it is left out: 500 pods that have not ended and 2000 count/pods; 100 configmaps, secrets, services,
	// persistentvolumeclaims, replicationcontrollers, count/cronjobs.batch, count/deployments.apps, count/statefulsets.apps
	// and count/ingresses.networking.k8s.io; 1000 count/jobs.batch, count/replicasets.apps and
	// count/controllerrevisions.apps. Other kinds, such as count/rayclusters.ray.io, have no limit by default.
	//
	// +optional
	Objects ObjectLimits `json:"objects,omitempty"`

	// PodSecurity is the level of the Pod Security Standards that the namespaces of the
	// projects enforce. Default: baseline.
	//
	// +optional
	// +kubebuilder:default=baseline
	PodSecurity PodSecurity `json:"podSecurity,omitempty"`

	// Services sets which Services and Ingresses the projects can have.
	//
	// +optional
	// +kubebuilder:default={}
	Services ServiceTerms `json:"services,omitempty,omitzero"`

	// Members are the users, groups and service accounts that have a role in all projects of
	// the department.
	//
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Members []Member `json:"members,omitempty"`

	// Workloads sets limits for each type of workload: train, interactive and inference. The
	// key "*" sets the limits that a type leaves out.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=4
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['*', 'train', 'interactive', 'inference'])",message="keys must be train, interactive, inference or *"
	Workloads map[WorkloadType]WorkloadLimits `json:"workloads,omitempty"`

	// Activity sets from which use on a pod counts as active. Idle timeouts, the clock mode Active
	// and the used GPU hours of the usage records follow from it.
	//
	// +optional
	// +kubebuilder:default={}
	Activity ActivityTerms `json:"activity,omitempty,omitzero"`

	// Projects sets how long the department's projects are valid. Without it they never
	// expire.
	//
	// +optional
	Projects ProjectTerms `json:"projects,omitempty,omitzero"`

	// Extensions sets how workloads get more time.
	//
	// +optional
	// +kubebuilder:default={}
	Extensions ExtensionTerms `json:"extensions,omitempty,omitzero"`

	// Holidays are days on which no step of a project's expiry happens: one that falls on a holiday
	// is postponed to 00:00 of the first day after it. They do not count as notice, so that
	// warnings are sent earlier. Ranges that touch are one. Later steps count from the postponed one,
	// and the periods of validity do not move.
	//
	// +optional
	// +listType=map
	// +listMapKey=from
	// +kubebuilder:validation:MaxItems=50
	Holidays []Holiday `json:"holidays,omitempty"`

	// Notices sets when and in which language Sluice sends mail.
	//
	// +optional
	// +kubebuilder:default={}
	Notices NoticeTerms `json:"notices,omitempty,omitzero"`
}

// DepartmentStatus is the observed state of a department.
type DepartmentStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Projects is the number of projects in the department.
	//
	// +optional
	Projects int32 `json:"projects,omitempty"`

	// GPU is the department's GPU quota and usage, summed over all node pools.
	//
	// +optional
	GPU GPUUsage `json:"gpu,omitempty,omitzero"`

	// NodePools is the GPU quota and usage in each node pool.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	NodePools []PoolUsage `json:"nodePools,omitempty"`

	// PoolSummary shows the allocated GPUs and the limit of each node pool, such as "dgx 9/8, mig
	// 1/4", for display: a sum over all pools would hide that one of them exceeds its limit. The
	// pool closest to its limit is first. At most three pools are named; +2 means two more.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=300
	PoolSummary string `json:"poolSummary,omitempty"`

	// Conditions are Ready, QueueApplied, MembersBound, Oversubscribed, LimitExceeded and Unsupported.
	//
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Department is an organizational unit that shares GPUs among its projects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=sldept,categories=sluice
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 63 characters: lower-case letters, digits and hyphens"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Projects",type=integer,JSONPath=`.status.projects`
// +kubebuilder:printcolumn:name="Guaranteed",type=string,JSONPath=`.status.gpu.guaranteed`
// +kubebuilder:printcolumn:name="Allocated of limit",type=string,JSONPath=`.status.poolSummary`
// +kubebuilder:printcolumn:name="Over quota",type=string,JSONPath=`.status.gpu.overQuota`
// +kubebuilder:printcolumn:name="Pending",type=string,JSONPath=`.status.gpu.pending`
// +kubebuilder:printcolumn:name="Validity",type=string,JSONPath=`.spec.projects.validity`,priority=1
// +kubebuilder:printcolumn:name="Name",type=string,JSONPath=`.spec.displayName`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Department struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec sets the quota of the department and the rules for its projects.
	//
	// +required
	Spec DepartmentSpec `json:"spec"`

	// Status is the observed state of the department.
	//
	// +optional
	Status DepartmentStatus `json:"status,omitempty"`
}

// DepartmentList is a list of departments.
//
// +kubebuilder:object:root=true
type DepartmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Department `json:"items"`
}
