// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"path"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AdmissionParametersName is the name of the one AdmissionParameters object.
const AdmissionParametersName = "sluice"

// UserPattern is the name of a Kubernetes user, or a prefix of user names followed by one
// asterisk, such as system:serviceaccount:kube-system:*. A lone asterisk is not allowed.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:Pattern=`^[^*\r\n]+\*?$`
type UserPattern string

// Matches reports whether the pattern matches the name of a user.
func (p UserPattern) Matches(user string) bool {
	prefix, isPrefix := strings.CutSuffix(string(p), "*")
	return user == prefix || isPrefix && strings.HasPrefix(user, prefix)
}

// NamespacePattern is the name of a namespace, a prefix of names followed by -*, or a suffix after *-, such as
// *-system.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(\*-)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(-\*)?$`
type NamespacePattern string

// Matches reports whether the pattern matches the name of a namespace.
func (p NamespacePattern) Matches(namespace string) bool {
	matches, err := path.Match(string(p), namespace)
	return matches && err == nil
}

// ResourcePattern is the name of an extended resource, or a prefix of names with the domain, followed by
// one asterisk, such as rdma/*. All resources of nvidia.com are not allowed, since device plugins rename
// GPUs there.
//
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/([*]|[A-Za-z0-9][-A-Za-z0-9_.]*[*]?)$`
// +kubebuilder:validation:XValidation:rule="self != 'nvidia.com/*'",message="must be more specific: a device plugin can offer GPUs under any name of nvidia.com"
type ResourcePattern string

// KindControllers are the controllers of one kind.
type KindControllers struct {
	// Kind is the kind with its API group, such as PyTorchJob.kubeflow.org, or Pod.
	//
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*([.][a-z0-9.-]+)?$`
	Kind string `json:"kind"`

	// Users may set controller references to objects of the kind.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Users []UserPattern `json:"users"`
}

// AdmissionParametersSpec has the identities, names and limits that Sluice's admission policies use.
// Each list is a set whose entries are merged by server-side apply. The lifecycle controller
// maintains the default entries and the entries of its own configuration. Other field managers can
// add entries.
type AdmissionParametersSpec struct {
	// Binders are the users that may bind pods of projects to nodes: the schedulers.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Binders []UserPattern `json:"binders,omitempty"`

	// Controllers are the users that may set controller references to objects of every kind, and
	// copy annotations of Sluice from them: the controllers of Kubernetes, for example.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Controllers []UserPattern `json:"controllers,omitempty"`

	// KindControllers are the users that may set controller references to objects of one kind: the
	// operators. Lifecycle keeps the ServiceAccounts with which the known operators are installed.
	//
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=256
	KindControllers []KindControllers `json:"kindControllers,omitempty"`

	// Queues are the users that may suspend and admit pods and workloads, and write queue
	// objects: Kueue.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Queues []UserPattern `json:"queues,omitempty"`

	// Managers are the users that may change the objects that Sluice manages: the lifecycle
	// controller, and tools of the platform team.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Managers []UserPattern `json:"managers,omitempty"`

	// DeviceClasses are the DeviceClasses whose devices are GPUs.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	DeviceClasses []string `json:"deviceClasses,omitempty"`

	// GPUResources are the extended resources that represent GPUs or shares of a GPU, with those of
	// other vendors. MIG slices and the GPU quota unit need no entry. Lifecycle adds the resources
	// that NodePools name.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	GPUResources []string `json:"gpuResources,omitempty"`

	// NonGPUResources are the extended resources that are no GPUs, such as rdma/*. Pods of projects
	// may request them without a charge. Any other resource that nodes of a NodePool offer and that
	// neither Sluice nor a NodePool knows as a GPU is rejected in projects.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=128
	NonGPUResources []ResourcePattern `json:"nonGPUResources,omitempty"`

	// DeviceAnnotations are the annotations of pods by which a container runtime or one of its
	// plugins gives a container devices: whole keys, or their part before the slash. Pods of
	// projects must not have them.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$`
	DeviceAnnotations []string `json:"deviceAnnotations,omitempty"`

	// PodTemplates are kinds that Sluice does not know and that create pods. Policies evaluate their
	// templates when an object is created or changed, and the webhook records its creator. `sluice
	// workload-kinds` and the chart write the setting together with the rules of the webhooks for these kinds.
	//
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=32
	PodTemplates []PodTemplates `json:"podTemplates,omitempty"`

	// ExemptNamespaces are further namespaces, by name, in which pods may request GPUs without
	// a project. The system namespaces of Kubernetes, NVIDIA and the schedulers are always
	// exempt.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	ExemptNamespaces []string `json:"exemptNamespaces,omitempty"`

	// ReservedNamespaces are the names of namespaces that Sluice creates for no project, since a
	// component of the cluster may be installed there later. A project may adopt a namespace of such a
	// name that exists.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	ReservedNamespaces []NamespacePattern `json:"reservedNamespaces,omitempty"`

	// MaxLabels is the largest number of labels of a pod, a workload or its pod template in a
	// project. The labels of Sluice do not count. An object with more from before the project can
	// be updated, but gets no further ones. Lifecycle's configuration sets it.
	//
	// +optional
	// +kubebuilder:default=256
	// +kubebuilder:validation:Minimum=64
	// +kubebuilder:validation:Maximum=4096
	MaxLabels int32 `json:"maxLabels,omitempty"`

	// MaxAnnotations is the same for annotations.
	//
	// +optional
	// +kubebuilder:default=256
	// +kubebuilder:validation:Minimum=64
	// +kubebuilder:validation:Maximum=4096
	MaxAnnotations int32 `json:"maxAnnotations,omitempty"`

	// PolicyData are the kinds of objects that policies read as data.objects. The webhook needs the
	// right to list and watch them: a ClusterRole with the label
	// sluice.dev/aggregate-to-policy-data: "true" gives it. Default none.
	//
	// +optional
	// +listType=map
	// +listMapKey=apiVersion
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=8
	PolicyData []PolicyDataKind `json:"policyData,omitempty"`
}

// MaxPause is the longest time from the request of a pause to its end.
const MaxPause = 24 * time.Hour

// Pause is a time in which Sluice refuses and ends less, so that people can mend what is wrong. The
// denials of Policies are warnings, except those of built-in policies and of their replacements. No
// workload is stopped for a time limit, no pod is evicted, and no project takes a step of its
// expiry. Times are policy time.
//
// +kubebuilder:validation:XValidation:rule="self.until >= self.since",message="until must not be before since"
// +kubebuilder:validation:XValidation:rule="self.until - self.since <= duration('24h')",message="until must be at most 24h after since: request another pause before this one ends"
type Pause struct {
	// Since is when the pause was requested.
	//
	// +required
	Since metav1.Time `json:"since"`

	// Until is when the pause ends by itself, at most 24 h after Since. What falls due before ends
	// at the earliest the shortest lead after it.
	//
	// +required
	Until metav1.Time `json:"until"`

	// By is the user who requested the pause. An admission policy compares it with the request.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by"`

	// Reason is why.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason"`

	// EndedBy is the user who ended the pause early.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	EndedBy string `json:"endedBy,omitempty"`
}

// IsInForce reports whether the pause holds at a policy time. A pause that is longer than
// [MaxPause] never does.
func (p *Pause) IsInForce(now time.Time) bool {
	return p.isValid() && !now.Before(p.Since.Add(-pauseClockSkew)) && now.Before(p.Until.Time)
}

// HeldUntil returns the end of the pause if it has begun, whether or not it is over, and the zero
// time otherwise.
func (p *Pause) HeldUntil(now time.Time) time.Time {
	if !p.isValid() || now.Before(p.Since.Add(-pauseClockSkew)) {
		return time.Time{}
	}
	return p.Until.Time
}

// pauseClockSkew is how far the clock of the machine that requests a pause may be ahead.
const pauseClockSkew = 5 * time.Minute

func (p *Pause) isValid() bool {
	return p != nil && !p.Since.IsZero() && p.Until.After(p.Since.Time) && p.Until.Sub(p.Since.Time) <= MaxPause
}

// AdmissionParametersStatus is the state of what the parameters are for.
type AdmissionParametersStatus struct {
	// Pause is the present pause, or the last one. `sluice pause` writes it.
	//
	// +optional
	Pause *Pause `json:"pause,omitempty"`

	// Audit describes the last complete audit of the objects that exist, which lifecycle writes.
	//
	// +optional
	Audit *AuditRecord `json:"audit,omitempty"`

	// Conditions has Paused, which lifecycle writes.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AdmissionParameters is the parameter object of Sluice's ValidatingAdmissionPolicies. The only
// object is named sluice. If it is deleted, the lifecycle controller creates it again. Until then,
// the API server rejects all requests that the policies cover in governed namespaces, and
// evaluates none in other namespaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=sladm,categories=sluice
// +kubebuilder:printcolumn:name="Binders",type=string,JSONPath=`.spec.binders`
// +kubebuilder:printcolumn:name="Managers",type=string,JSONPath=`.spec.managers`
// +kubebuilder:printcolumn:name="Paused",type=string,JSONPath=`.status.conditions[?(@.type=="Paused")].status`
// +kubebuilder:printcolumn:name="Pause-Until",type=string,JSONPath=`.status.pause.until`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'sluice'",message="must be named sluice: only one such object can exist"
type AdmissionParameters struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the identities, names and limits that the policies use.
	//
	// +required
	Spec AdmissionParametersSpec `json:"spec"`

	// Status has the pause.
	//
	// +optional
	Status AdmissionParametersStatus `json:"status,omitempty,omitzero"`
}

// AdmissionParametersList is a list of AdmissionParameters.
//
// +kubebuilder:object:root=true
type AdmissionParametersList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AdmissionParameters `json:"items"`
}
