// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
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
)

// kueueWorkloads is what Kueue's Workloads are served as.
var kueueWorkloads = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}

// The conditions of a Workload that are read.
const (
	kueueReserved  = "QuotaReserved"
	kueueAdmitted  = "Admitted"
	kueueEvicted   = "Evicted"
	kueuePreempted = "Preempted" // and the reason why it is evicted then
	kueueFinished  = "Finished"
)

// What is read of one is bounded: anybody may have written it. maxKueueMessage is in
// bytes, maxKueueShare in thousandths of a GPU, and far more than there are.
const (
	maxKueueMessage = 2048
	maxPodSets      = 64
	maxKueueShare   = 1 << 40
)

// ownerKindPod is the kind of the owner of a Workload that stands for pods.
const ownerKindPod = "Pod"

// kueueWorkload is as much of a Workload as is read of it: nothing else of one is
// ever in memory.
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

	// pods is how many it asks for, share what they are charged in all, and pool
	// where; empty where they say different pools, or none.
	pods  int32
	share workload.Milli
	pool  string
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
		Requests map[corev1.ResourceName]lenient `json:"requests"`
	} `json:"resources"`
}

// lenient is an amount of the currency; 0 for what cannot be read as one.
type lenient int64

// UnmarshalJSON implements json.Unmarshaler. It has no errors: one odd object must
// not keep all others from being read.
func (l *lenient) UnmarshalJSON(raw []byte) error {
	*l = 0
	if q, err := resource.ParseQuantity(strings.Trim(string(raw), `"`)); err == nil && q.Sign() > 0 {
		*l = lenient(min(q.Value(), maxKueueShare))
	}
	return nil
}

// trimKueue reckons up what a Workload asks for, and forgets how it does.
func trimKueue(object any) (any, error) {
	w, ok := object.(*kueueWorkload)
	if !ok {
		return object, nil
	}
	w.ManagedFields, w.Annotations, w.Labels, w.Finalizers = nil, nil, nil, nil
	w.reckon()
	w.Spec.PodSets = nil
	w.Status.Conditions = slices.DeleteFunc(w.Status.Conditions, func(c metav1.Condition) bool {
		return !slices.Contains([]string{kueueReserved, kueueAdmitted, kueueEvicted, kueuePreempted, kueueFinished}, c.Type)
	})
	for i := range w.Status.Conditions {
		c := &w.Status.Conditions[i]
		c.Message = strings.Clone(c.Message[:min(len(c.Message), maxKueueMessage)])
	}
	return w, nil
}

// reckon adds up the pods. An object that was reckoned before has none any more.
func (w *kueueWorkload) reckon() {
	for i := range w.Spec.PodSets[:min(len(w.Spec.PodSets), maxPodSets)] {
		set := &w.Spec.PodSets[i]
		var each int64
		for _, c := range set.Template.Spec.Containers {
			each = min(each+c.currency(), maxKueueShare)
		}
		for _, c := range set.Template.Spec.InitContainers {
			each = max(each, c.currency())
		}
		if each <= 0 || set.Count <= 0 {
			continue
		}
		pool := strings.Clone(set.Template.Metadata.Labels[v1alpha1.LabelNodePool])
		if w.pods > 0 && pool != w.pool {
			pool = ""
		}
		w.pool = pool
		w.pods = min(w.pods, math.MaxInt32-set.Count) + set.Count
		if each > maxKueueShare/int64(set.Count) {
			each = maxKueueShare / int64(set.Count)
		}
		w.share = min(w.share+workload.Milli(each*int64(set.Count)), maxKueueShare)
	}
}

func (c *kueueContainer) currency() (sum int64) {
	for name, amount := range c.Resources.Requests {
		if isCurrency(string(name)) {
			sum = min(sum+int64(amount), maxKueueShare)
		}
	}
	return sum
}

// is tells whether a condition holds.
func (w *kueueWorkload) is(condition string) bool {
	return meta.IsStatusConditionTrue(w.Status.Conditions, condition)
}

// waits tells whether it asks for GPUs, may have them, and was not let in.
func (w *kueueWorkload) waits() bool {
	active := w.Spec.Active == nil || *w.Spec.Active
	return w.share > 0 && active && w.DeletionTimestamp.IsZero() && !w.is(kueueAdmitted) && !w.is(kueueFinished)
}

// DeepCopyObject implements runtime.Object. What is in the cache has no pod sets.
func (w *kueueWorkload) DeepCopyObject() runtime.Object {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	c.Spec.PodSets = slices.Clone(w.Spec.PodSets)
	c.Status.Conditions = slices.Clone(w.Status.Conditions)
	return &c
}

// kueueWorkloadList is a list of them.
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

// kueueScheme knows them, and nothing else.
func kueueScheme() *runtime.Scheme {
	kinds := runtime.NewScheme()
	kinds.AddKnownTypeWithName(kueueWorkloads.WithKind("Workload"), &kueueWorkload{})
	kinds.AddKnownTypeWithName(kueueWorkloads.WithKind("WorkloadList"), &kueueWorkloadList{})
	metav1.AddToGroupVersion(kinds, kueueWorkloads)
	return kinds
}
