// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
)

// kueueGroupVersion is the supported API version of Kueue.
var kueueGroupVersion = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}

// The conditions of a Workload that the controller reads.
const (
	kueueQuotaReserved = "QuotaReserved"
	kueueAdmitted      = "Admitted"
	kueueEvicted       = "Evicted"
	kueuePreempted     = "Preempted" // also a reason of Evicted
	kueueFinished      = "Finished"
)

// Limits on the data of a Workload, which any user may write. maxKueueMessage is in bytes,
// maxKueueCharge in thousandths of a GPU.
const (
	maxKueueMessage = 2048
	maxPodSets      = 64
	maxKueueCharge  = 1 << 40
)

// ownerKindPod is the kind of owner of a Workload that represents pods.
const ownerKindPod = "Pod"

// kueueWorkload has the fields of a Workload that the controller reads. The others are never in
// memory.
type kueueWorkload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		QueueName string        `json:"queueName"`
		Active    *bool         `json:"active"`
		PodSets   []kueuePodSet `json:"podSets"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`

	// pods is the number of requested pods, charge the GPU quota that they need in total, and
	// pool their node pool. pool is empty if they differ.
	pods   int32
	charge workload.Milli
	pool   string
	// workloadType is that of the first pod set with GPUs; empty if it has none.
	workloadType v1alpha1.WorkloadType
}

type kueuePodSet struct {
	Count    int32 `json:"count"`
	Template struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Spec struct {
			InitContainers []kueueContainer `json:"initContainers"`
			Containers     []kueueContainer `json:"containers"`
		} `json:"spec"`
	} `json:"template"`
}

type kueueContainer struct {
	Resources struct {
		Requests map[corev1.ResourceName]lenientMilli `json:"requests"`
	} `json:"resources"`
}

// lenientMilli is an amount of the GPU quota unit. Invalid values are read as 0.
type lenientMilli int64

// UnmarshalJSON implements json.Unmarshaler. It returns no errors, so that one invalid object
// does not prevent reading the others.
func (l *lenientMilli) UnmarshalJSON(raw []byte) error {
	*l = 0
	if q, err := resource.ParseQuantity(strings.Trim(string(raw), `"`)); err == nil && q.Sign() > 0 {
		*l = lenientMilli(min(q.Value(), maxKueueCharge))
	}
	return nil
}

// trimKueueWorkload computes the requested quota of a Workload and drops its pod sets.
func trimKueueWorkload(object any) (any, error) {
	w, ok := object.(*kueueWorkload)
	if !ok {
		return object, nil
	}
	maps.DeleteFunc(w.Annotations, func(key, _ string) bool {
		return key != v1alpha1.AnnotationPutBack && key != v1alpha1.AnnotationStoppedUntil
	})
	w.ManagedFields, w.Labels, w.Finalizers = nil, nil, nil
	w.computeCharge()
	w.Spec.PodSets = nil
	w.Status.Conditions = slices.DeleteFunc(w.Status.Conditions, func(c metav1.Condition) bool {
		return !slices.Contains([]string{kueueQuotaReserved, kueueAdmitted, kueueEvicted, kueuePreempted, kueueFinished}, c.Type)
	})
	for i := range w.Status.Conditions {
		c := &w.Status.Conditions[i]
		c.Message = strings.Clone(c.Message[:min(len(c.Message), maxKueueMessage)])
	}
	return w, nil
}

// computeCharge sums the requests of the pod sets. A trimmed object has none.
func (w *kueueWorkload) computeCharge() {
	for i := range w.Spec.PodSets[:min(len(w.Spec.PodSets), maxPodSets)] {
		set := &w.Spec.PodSets[i]
		var podCharge int64
		for _, c := range set.Template.Spec.Containers {
			podCharge = min(podCharge+c.gpuMilli(), maxKueueCharge)
		}
		for _, c := range set.Template.Spec.InitContainers {
			podCharge = max(podCharge, c.gpuMilli())
		}
		if podCharge <= 0 || set.Count <= 0 {
			continue
		}
		pool := strings.Clone(set.Template.Metadata.Labels[v1alpha1.LabelNodePool])
		if w.pods == 0 {
			w.workloadType = v1alpha1.WorkloadType(strings.Clone(set.Template.Metadata.Labels[v1alpha1.LabelWorkloadType]))
		} else if pool != w.pool {
			pool = ""
		}
		w.pool = pool
		w.pods = min(w.pods, math.MaxInt32-set.Count) + set.Count
		if podCharge > maxKueueCharge/int64(set.Count) {
			podCharge = maxKueueCharge / int64(set.Count)
		}
		w.charge = min(w.charge+workload.Milli(podCharge*int64(set.Count)), maxKueueCharge)
	}
}

func (c *kueueContainer) gpuMilli() (sum int64) {
	for name, amount := range c.Resources.Requests {
		if v1alpha1.IsGPUMilli(name) {
			sum = min(sum+int64(amount), maxKueueCharge)
		}
	}
	return sum
}

// hasCondition reports whether a condition is true.
func (w *kueueWorkload) hasCondition(condition string) bool {
	return meta.IsStatusConditionTrue(w.Status.Conditions, condition)
}

// isPending reports whether the Workload requests GPUs, is active, and is neither admitted nor
// finished.
func (w *kueueWorkload) isPending() bool {
	return w.isOpen() && w.isActive() && !w.hasCondition(kueueAdmitted)
}

// isOpen reports whether the Workload requests GPUs, has not finished and is not being deleted.
func (w *kueueWorkload) isOpen() bool {
	return w.charge > 0 && w.DeletionTimestamp.IsZero() && !w.hasCondition(kueueFinished)
}

func (w *kueueWorkload) isActive() bool { return w.Spec.Active == nil || *w.Spec.Active }

// putBack returns the record of a Workload that did not start.
func (w *kueueWorkload) putBack() workloadkind.PutBack {
	return workloadkind.ParsePutBack(w.Annotations[v1alpha1.AnnotationPutBack])
}

// DeepCopyObject implements runtime.Object.
func (w *kueueWorkload) DeepCopyObject() runtime.Object {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	c.Spec.PodSets = slices.Clone(w.Spec.PodSets)
	c.Status.Conditions = slices.Clone(w.Status.Conditions)
	return &c
}

// kueueWorkloadList is a list of Workloads.
type kueueWorkloadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []kueueWorkload `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *kueueWorkloadList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	for i := range c.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*kueueWorkload) //nolint:forcetypeassert // it is one
	}
	return &c
}

// newKueueScheme returns a scheme with Workloads only.
func newKueueScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(kueueGroupVersion.WithKind("Workload"), &kueueWorkload{})
	scheme.AddKnownTypeWithName(kueueGroupVersion.WithKind("WorkloadList"), &kueueWorkloadList{})
	metav1.AddToGroupVersion(scheme, kueueGroupVersion)
	return scheme
}
