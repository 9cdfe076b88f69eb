// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
)

// ObservedState is what was seen of a project.
type ObservedState struct {
	// Quotas are those that were rendered for it.
	Quotas []corev1.ResourceQuota
	// Charges is what its pods are charged.
	Charges PodCharges
	// Rejected are the workloads whose pods did not fit into a quota, Queued those
	// that wait in a queue of Kueue's, oldest first.
	Rejected []Workload
	Queued   []QueuedWorkload
}

// DesiredStatus is the project's status with what is let in and what waits: outside for
// quota, in a queue, and, let in, for a place on a node. Nothing else of it is
// touched.
func DesiredStatus(project *v1alpha1.Project, seen ObservedState, now metav1.Time) v1alpha1.ProjectStatus {
	status := *project.Status.DeepCopy()
	allocated, in := seen.Charges.allocatedByPool(project, seen.Quotas)
	pending, by := seen.pendingCharges()
	status.GPU.Allocated, status.GPU.Pending = milliQuantity(allocated), milliQuantity(pending)
	status.NodePools = slices.DeleteFunc(status.NodePools, func(use v1alpha1.PoolUsage) bool { return isReleased(project, &use) })
	for i := range status.NodePools {
		pool := &status.NodePools[i]
		pool.Allocated, pool.Pending = milliQuantity(in[pool.Name]), milliQuantity(by[pool.Name])
	}
	v1alpha1.SetOverQuota(&status.GPU, status.NodePools)
	condition := metav1.Condition{
		Type: v1alpha1.ConditionPending, Status: metav1.ConditionTrue,
		ObservedGeneration: project.Generation, LastTransitionTime: now,
	}
	switch {
	case len(seen.Rejected) > 0 && len(seen.Queued) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonQuotaExceeded, summarizeRejected(seen.Rejected)+". Besides, "+summarizeQueued(seen.Queued)
	case len(seen.Rejected) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonQuotaExceeded, summarizeRejected(seen.Rejected)
	case len(seen.Queued) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonQueued, summarizeQueued(seen.Queued)
	case meta.FindStatusCondition(status.Conditions, condition.Type) == nil:
		return status // where nothing ever waited there is nothing to say
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonNoPendingWorkloads, "no workload waits for GPU quota"
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}

// fieldManager owns the fields of this controller.
const fieldManager = v1alpha1.FieldManagerLifecycle + "-pending"

// statusFields returns this controller's fields of a project's status.
func statusFields(project *v1alpha1.Project, status *v1alpha1.ProjectStatus) *ac.ProjectApplyConfiguration {
	fields := ac.ProjectStatus().
		WithGPU(ac.GPUUsage().WithAllocated(status.GPU.Allocated).WithOverQuota(status.GPU.OverQuota).WithPending(status.GPU.Pending)).
		WithConditions(apply.Conditions(status.Conditions, v1alpha1.ConditionPending)...)
	for i := range status.NodePools {
		pool := &status.NodePools[i]
		fields.WithNodePools(ac.PoolUsage().WithName(pool.Name).
			WithAllocated(pool.Allocated).WithOverQuota(pool.OverQuota).WithPending(pool.Pending))
	}
	return ac.Project(project.Name).WithStatus(fields)
}

// isReleased reports whether the project controller, which decides which node pools the
// status lists, no longer writes this one. The list keeps it until this controller
// leaves it out, too.
func isReleased(project *v1alpha1.Project, use *v1alpha1.PoolUsage) bool {
	at := slices.IndexFunc(project.Spec.NodePools, func(quota v1alpha1.PoolQuota) bool { return quota.Name == use.Name })
	if at < 0 {
		return true
	}
	limit := project.Spec.NodePools[at].GPU.MaxInUse()
	return use.Limit.IsZero() && !limit.IsZero()
}

// pendingCharges is what waits in all, and of which node pool. Of what is refused in a
// currency of several pools nobody knows which it would be.
func (s *ObservedState) pendingCharges() (all workload.Milli, by poolCharges) {
	by = poolCharges{}
	for pool, milli := range s.Charges.Pending {
		by[pool] += milli
	}
	for i := range s.Rejected {
		by[s.Rejected[i].NodePool()] += s.Rejected[i].PendingCharge()
	}
	for i := range s.Queued {
		by[s.Queued[i].Pool] += s.Queued[i].UncreatedCharge
	}
	return by.total(), by
}

func milliQuantity(milli workload.Milli) resource.Quantity {
	return *resource.NewMilliQuantity(int64(milli), resource.DecimalSI)
}

// poolCharges are what pods are charged, by node pool.
type poolCharges map[string]workload.Milli

func (c poolCharges) total() (all workload.Milli) {
	for _, milli := range c {
		all += milli
	}
	return all
}

// PodCharges is what a project's pods are charged, by node pool.
type PodCharges struct {
	// Admitted is that of the pods that were let in, Queued that of those that Kueue holds
	// back. A quota counts both.
	Admitted, Queued poolCharges
	// Pending is that of the pods that wait, in a queue or for a node.
	Pending poolCharges
}

// SumPodCharges is what the project's pods among these are charged.
func SumPodCharges(pods iter.Seq[*podcache.Pod], project string) PodCharges {
	c := PodCharges{Admitted: poolCharges{}, Queued: poolCharges{}, Pending: poolCharges{}}
	for pod := range pods {
		if pod.Project != project {
			continue
		}
		by := c.Admitted
		if pod.Queued {
			by = c.Queued
		}
		by[pod.Pool] += pod.Milli
		if pod.Node == "" && !pod.Deleting {
			c.Pending[pod.Pool] += pod.Milli
		}
	}
	return c
}

// allocatedByPool is what is let in of all pools, and in each. Where a pool has its
// currency to itself the quota tells, which counts exactly; where several share one
// it tells their sum, and the pods whose it is.
func (c PodCharges) allocatedByPool(project *v1alpha1.Project, quotas []corev1.ResourceQuota) (all workload.Milli, in poolCharges) {
	in = poolCharges{}
	var queued workload.Milli
	for _, pool := range project.Spec.NodePools {
		_, used, alone := apply.EnforcedLimit(quotas, v1alpha1.ResourceGPUMilliFor(pool.Name))
		if !alone {
			in[pool.Name] = c.Admitted[pool.Name]
			queued += c.Queued[pool.Name]
			continue
		}
		in[pool.Name] = max(0, workload.Milli(used)-c.Queued[pool.Name])
		all += in[pool.Name]
	}
	_, shared, _ := apply.EnforcedLimit(quotas, v1alpha1.ResourceGPUMilli)
	return all + max(0, workload.Milli(shared)-queued), in
}
