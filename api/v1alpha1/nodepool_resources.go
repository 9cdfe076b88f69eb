// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUResource is an extended resource under which nodes of a pool offer GPUs.
type GPUResource struct {
	// Name is the resource, such as nvidia.com/a100 or amd.com/gpu. It must not be one that Sluice knows:
	// nvidia.com/gpu, a MIG profile, or a resource of a scheduler.
	//
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['nvidia.com/gpu', 'nvidia.com/gpu.shared', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores']) && !self.startsWith('nvidia.com/mig-') && !self.startsWith('volcano.sh/') && !self.startsWith('koordinator.sh/') && !self.startsWith('sluice.dev/') && !self.contains('kubernetes.io/')",message="must not be a resource that Sluice knows: nvidia.com/gpu, its replicas and sizes, MIG profiles, and those of Volcano, Koordinator, Kubernetes and Sluice"
	Name string `json:"name"`

	// GPUs is what one unit of the resource is and is charged: a number of GPUs, or a part of one, such
	// as 1, 500m or 0.5.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 16 : isQuantity(self) && [quantity(self).asApproximateFloat() * 1000.0].all(m, m > 0.9 && m < 16000.1 && [int(m + 0.5)].all(r, m - double(r) < 0.000001 && double(r) - m < 0.000001 && (r <= 1000 || r % 1000 == 0)))",message="must be a whole number of GPUs from 1 to 16, or a part of one in steps of a thousandth, such as 1, 500m or 0.5"
	GPUs resource.Quantity `json:"gpus"`
}

// UnlistedResource is an extended resource that nodes of a pool offer and no list knows.
type UnlistedResource struct {
	// Name is the resource.
	//
	// +required
	// +kubebuilder:validation:MaxLength=317
	Name string `json:"name"`

	// GoneSince is when the last node stopped offering it. It is absent while a node offers it. The
	// entry is removed 24 hours later.
	//
	// +optional
	GoneSince metav1.Time `json:"goneSince,omitempty,omitzero"`
}

// ResourceFactor is a number above 0 and below 1000 with at most three decimals, such as "1.5", or
// Unlimited.
//
// +kubebuilder:validation:MaxLength=9
// +kubebuilder:validation:XValidation:rule="self == 'Unlimited' || self.matches('^[0-9]{1,3}([.][0-9]{1,3})?$') && double(self) > 0.0",message="must be a number above 0 and below 1000 with at most three decimals, such as \"1.5\", or Unlimited"
type ResourceFactor string

// ResourceFactorUnlimited lets pods request any amount.
const ResourceFactorUnlimited ResourceFactor = "Unlimited"

// ResourceShares sets how much CPU, memory, ephemeral storage and huge pages pods with GPUs may
// request in total, all containers together: their GPUs' share of a node, times a factor. A share
// of a GPU counts by its part. The node is the one of the pool that offers least for each GPU, among
// those that could hold the request and offer the resource (status.nodeKinds).
type ResourceShares struct {
	// NonPreemptible is the factor of pods that cannot be preempted. With the default, "1", such
	// pods leave to each other GPU what belongs to it. The pods of DaemonSets are not counted; a
	// smaller factor leaves room for them.
	//
	// +optional
	// +kubebuilder:default="1"
	NonPreemptible ResourceFactor `json:"nonPreemptible,omitempty"`

	// Preemptible is the factor of pods that can be preempted. The default is "1.5": they may use
	// what others leave, and give it back.
	//
	// +optional
	// +kubebuilder:default="1.5"
	Preemptible ResourceFactor `json:"preemptible,omitempty"`
}

// NodeKind is a kind of nodes of a pool: those with GPUs of one model and with the same number of GPUs.
type NodeKind struct {
	// Product is the GPU model, as in products.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Product string `json:"product"`

	// GPUs is the number of physical GPUs of one node, of all models.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	GPUs int32 `json:"gpus"`

	// Nodes is the number of nodes of this kind.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Nodes int32 `json:"nodes,omitempty"`

	// PerGPU is what a node offers to pods for each of its GPUs: its allocatable CPU, memory,
	// ephemeral storage and huge pages, divided by its GPUs. Of each resource it is the least among
	// the nodes of this kind that offer it.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	PerGPU corev1.ResourceList `json:"perGPU,omitempty"`
}

// DefaultPerGPU returns what counts as offered for each GPU of a pool while it has no node whose GPUs
// are known: 12 CPUs and 80Gi of memory, the least that the usual servers with data center GPUs offer
// for each GPU (a DGX A100 has 32 and 128Gi, p4d.24xlarge 12 and 144Gi, a2-highgpu 12 and 79Gi, rounded),
// and 50Gi of a disk of 400Gi. Huge pages need a node that offers them.
func DefaultPerGPU() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("12"),
		corev1.ResourceMemory:           resource.MustParse("80Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("50Gi"),
	}
}

// IsNodeResource reports whether schedulers count the resource and Sluice does not charge it: CPU,
// memory, ephemeral storage and huge pages.
func IsNodeResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	default:
		return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
	}
}

// ResourceFactor returns the factor of resourceShares for pods that can or cannot be preempted, in
// thousandths. It is 0 for Unlimited.
func (s *NodePoolSpec) ResourceFactor(preemptible bool) int64 {
	factor, fallback := s.ResourceShares.NonPreemptible, int64(1000)
	if preemptible {
		factor, fallback = s.ResourceShares.Preemptible, 1500
	}
	switch factor {
	case ResourceFactorUnlimited:
		return 0
	case "":
		return fallback
	}
	quantity, err := resource.ParseQuantity(string(factor))
	if err != nil || quantity.Sign() <= 0 { // the schema refuses it
		return fallback
	}
	return quantity.MilliValue()
}

// MaxRequests returns what a pod with one whole GPU of any kind of node may request. It is nil if that is not
// limited.
func (p *NodePool) MaxRequests(preemptible bool) corev1.ResourceList {
	factor := p.Spec.ResourceFactor(preemptible)
	if factor == 0 {
		return nil
	}
	kinds := p.Status.NodeKinds
	if len(kinds) == 0 {
		kinds = []NodeKind{{PerGPU: DefaultPerGPU()}}
	}
	most := corev1.ResourceList{}
	for i := range kinds {
		for name, offered := range kinds[i].PerGPU {
			amount := scaledDown(name, offered, factor)
			if least, ok := most[name]; !ok || amount.Cmp(least) < 0 {
				most[name] = amount
			}
		}
	}
	return most
}

// scaledDown returns a quantity times a factor in thousandths, rounded down to thousandths of a CPU or to MiB.
func scaledDown(name corev1.ResourceName, quantity resource.Quantity, factor int64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(quantity.MilliValue()*factor/1000, resource.DecimalSI)
	}
	return *resource.NewQuantity(quantity.Value()>>20*factor/1000<<20, resource.BinarySI)
}
