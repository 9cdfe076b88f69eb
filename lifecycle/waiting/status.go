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

// Seen is what was seen of a project.
type Seen struct {
	// Quotas are those that were rendered for it.
	Quotas []corev1.ResourceQuota
	// Charged is what its pods are charged.
	Charged Charged
	// Refused are the workloads whose pods did not fit into a quota, Queued those
	// that wait in a queue of Kueue's, oldest first.
	Refused []Workload
	Queued  []Queued
}

// Status is the project's status with what is let in and what waits: outside for
// quota, in a queue, and, let in, for a place on a node. Nothing else of it is
// touched.
func Status(project *v1alpha1.Project, seen Seen, now metav1.Time) v1alpha1.ProjectStatus {
	status := *project.Status.DeepCopy()
	allocated, in := seen.Charged.allocated(project, seen.Quotas)
	pending, by := seen.pending()
	status.GPU.Allocated, status.GPU.Pending = quantity(allocated), quantity(pending)
	for i := range status.NodePools {
		pool := &status.NodePools[i]
		pool.Allocated, pool.Pending = quantity(in[pool.Name]), quantity(by[pool.Name])
	}
	v1alpha1.Reckon(&status.GPU, status.NodePools)
	condition := metav1.Condition{
		Type: v1alpha1.ConditionWaiting, Status: metav1.ConditionTrue,
		ObservedGeneration: project.Generation, LastTransitionTime: now,
	}
	switch {
	case len(seen.Refused) > 0 && len(seen.Queued) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonQuotaExceeded, summary(seen.Refused)+". Besides, "+summaryOfQueued(seen.Queued)
	case len(seen.Refused) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonQuotaExceeded, summary(seen.Refused)
	case len(seen.Queued) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonQueued, summaryOfQueued(seen.Queued)
	case meta.FindStatusCondition(status.Conditions, condition.Type) == nil:
		return status // where nothing ever waited there is nothing to say
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonNothingWaits, "no workload waits for GPU quota"
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}

// pending is what waits in all, and of which node pool. Of what is refused in a
// currency of several pools nobody knows which it would be.
func (s *Seen) pending() (all workload.Milli, by charges) {
	by = charges{}
	for pool, milli := range s.Charged.Waiting {
		by[pool] += milli
	}
	for i := range s.Refused {
		by[s.Refused[i].Pool()] += s.Refused[i].Pending()
	}
	for i := range s.Queued {
		by[s.Queued[i].Pool] += s.Queued[i].Unmade
	}
	return by.sum(), by
}

func quantity(milli workload.Milli) resource.Quantity {
	return *resource.NewMilliQuantity(int64(milli), resource.DecimalSI)
}
