// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Status is the project's status with what waits: outside for quota, and inside,
// let in, for a place on a node. Nothing else of it is touched.
func Status(project *v1alpha1.Project, waiting []Workload, unplaced map[corev1.ResourceName]workload.Milli, now metav1.Time) v1alpha1.ProjectStatus {
	status := *project.Status.DeepCopy()
	by := map[corev1.ResourceName]workload.Milli{}
	var all workload.Milli
	for currency, milli := range unplaced {
		by[currency] += milli
		all += milli
	}
	for i := range waiting {
		by[waiting[i].Currency] += waiting[i].Pending()
		all += waiting[i].Pending()
	}
	status.GPU.Pending = quantity(all)
	for i := range status.NodePools {
		pool := &status.NodePools[i]
		pool.Pending = quantity(by[v1alpha1.GPUMilliFor(pool.Name)])
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionWaiting, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNothingWaits,
		Message:            "no workload waits for GPU quota",
		ObservedGeneration: project.Generation, LastTransitionTime: now,
	}
	if len(waiting) > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, v1alpha1.ReasonQuotaExceeded, summary(waiting)
	}
	// Where nothing ever waited there is nothing to say.
	if len(waiting) > 0 || meta.FindStatusCondition(status.Conditions, condition.Type) != nil {
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

// Unplaced is what pods are charged that were let in and have no node yet, by
// currency.
func Unplaced(pods []corev1.Pod) map[corev1.ResourceName]workload.Milli {
	sums := map[corev1.ResourceName]workload.Milli{}
	for i := range pods {
		pod := &pods[i]
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if over || pod.Spec.NodeName != "" || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		for j := range pod.Spec.Containers {
			for name, amount := range pod.Spec.Containers[j].Resources.Requests {
				if isCurrency(string(name)) {
					sums[name] += workload.Milli(amount.Value())
				}
			}
		}
	}
	return sums
}

func quantity(milli workload.Milli) resource.Quantity {
	return *resource.NewMilliQuantity(int64(milli), resource.DecimalSI)
}
