// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"iter"
	"slices"
	"time"

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

// ObservedState is the observed state of a project.
type ObservedState struct {
	// Quota is the project's ResourceQuota; nil without one.
	Quota *corev1.ResourceQuota
	// Charges is the GPU quota of the project's pods.
	Charges PodCharges
	// Rejected are the workloads whose pods exceeded the quota, and Queued those that Kueue has
	// not admitted, the oldest first.
	Rejected []Workload
	Queued   []QueuedWorkload
	// Reserved is the GPU quota by node pool that Kueue reserved for workloads that have no pods. The node
	// pool is "" if several are possible.
	Reserved poolCharges
	// Workloads are the largest workloads that hold GPUs, MoreWorkloads the number of the
	// others.
	Workloads     []v1alpha1.WorkloadUsage
	MoreWorkloads int32
	// UsageDifference describes the scheduler's usage if it differs from that of the pods; empty if it does not.
	UsageDifference string
}

// DesiredStatus returns the project's status with the allocated and pending GPUs, the workloads
// that hold them, and the conditions Pending and UsageDiffers. It changes no other field.
func DesiredStatus(project *v1alpha1.Project, observed ObservedState, now metav1.Time) v1alpha1.ProjectStatus {
	status := *project.Status.DeepCopy()
	allocated, in := observed.Charges.allocatedByPool(project, observed.Quota)
	allocated += observed.Reserved.total()
	for pool, milli := range observed.Reserved {
		in[pool] += milli
	}
	pending, by := observed.pendingCharges()
	status.GPU.Allocated, status.GPU.Pending = milliQuantity(allocated), milliQuantity(pending)
	status.NodePools = slices.DeleteFunc(status.NodePools, func(use v1alpha1.PoolUsage) bool { return isReleased(project, &use) })
	for i := range status.NodePools {
		pool := &status.NodePools[i]
		pool.Allocated, pool.Pending = milliQuantity(in[pool.Name]), milliQuantity(by[pool.Name])
		pool.Unscheduled = milliQuantity(observed.Charges.Unscheduled[pool.Name])
	}
	v1alpha1.SetOverQuota(&status.GPU, status.NodePools)
	status.PoolSummary = v1alpha1.SummarizePools(status.NodePools)
	status.Workloads, status.MoreWorkloads = observed.Workloads, observed.MoreWorkloads
	setUsageDiffers(&status, observed.UsageDifference, project.Generation, now)
	condition := metav1.Condition{
		Type: v1alpha1.ConditionPending, Status: metav1.ConditionTrue,
		ObservedGeneration: project.Generation, LastTransitionTime: now,
	}
	switch {
	case len(observed.Rejected) > 0 && len(observed.Queued) > 0:
		condition.Reason = v1alpha1.ReasonQuotaExceeded
		condition.Message = summarizeRejected(observed.Rejected) + ". In addition, " + summarizeQueued(observed.Queued)
	case len(observed.Rejected) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonQuotaExceeded, summarizeRejected(observed.Rejected)
	case len(observed.Queued) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonQueued, summarizeQueued(observed.Queued)
	case meta.FindStatusCondition(status.Conditions, condition.Type) == nil:
		return status // no workload was ever pending
	default:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonNoPendingWorkloads
		condition.Message = "no workload waits for GPU quota"
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}

// fieldManager owns the fields of this controller.
const fieldManager = v1alpha1.FieldManagerLifecycle + "-pending"

// statusFields returns this controller's fields of a project's status. A quantity that the status
// lacks is left out, so that zero is written once and not held for absent.
func statusFields(project *v1alpha1.Project, status *v1alpha1.ProjectStatus) *ac.ProjectApplyConfiguration {
	gpu := ac.GPUUsage()
	setQuantity(status.GPU.Allocated, gpu.WithAllocated)
	setQuantity(status.GPU.OverQuota, gpu.WithOverQuota)
	setQuantity(status.GPU.Pending, gpu.WithPending)
	fields := ac.ProjectStatus().WithGPU(gpu).WithConditions(apply.Conditions(status.Conditions, v1alpha1.ConditionPending, v1alpha1.ConditionUsageDiffers)...)
	if status.PoolSummary != "" {
		fields.WithPoolSummary(status.PoolSummary)
	}
	for i := range status.Workloads {
		fields.WithWorkloads(workloadFields(&status.Workloads[i]))
	}
	if status.MoreWorkloads > 0 {
		fields.WithMoreWorkloads(status.MoreWorkloads)
	}
	for i := range status.NodePools {
		use := &status.NodePools[i]
		pool := ac.PoolUsage().WithName(use.Name)
		setQuantity(use.Allocated, pool.WithAllocated)
		setQuantity(use.OverQuota, pool.WithOverQuota)
		setQuantity(use.Pending, pool.WithPending)
		setQuantity(use.Unscheduled, pool.WithUnscheduled)
		fields.WithNodePools(pool)
	}
	return ac.Project(project.Name).WithStatus(fields)
}

// setQuantity sets a field to a quantity that has been decoded or computed: only an absent one has no
// format.
func setQuantity[T any](q resource.Quantity, set func(resource.Quantity) T) {
	if q.Format != "" {
		set(q)
	}
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

// pendingCharges returns the pending GPU quota in total and by node pool. The node pool is "" if
// several pools share the quota resource.
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

// poolCharges is GPU quota by node pool.
type poolCharges map[string]workload.Milli

func (c poolCharges) total() (all workload.Milli) {
	for _, milli := range c {
		all += milli
	}
	return all
}

// PodCharges is the GPU quota of a project's pods by node pool.
type PodCharges struct {
	// Bound is the quota of pods that are bound to a node or that Kueue admitted, and Unbound that of all
	// others. A ResourceQuota counts both.
	Bound, Unbound poolCharges
	// Unscheduled is the quota of pods without a node that Kueue does not hold back.
	Unscheduled poolCharges
	// Pending is the part of Unbound of pods that are not being deleted.
	Pending poolCharges
	// PendingSince is the creation of the oldest pod without a node that is not being deleted; zero if there
	// is none.
	PendingSince time.Time
}

// SumPodCharges sums the GPU quota of the project's pods.
func SumPodCharges(pods iter.Seq[*podcache.Pod], project string) PodCharges {
	c := PodCharges{Bound: poolCharges{}, Unbound: poolCharges{}, Unscheduled: poolCharges{}, Pending: poolCharges{}}
	for pod := range pods {
		if pod.Project != project {
			continue
		}
		if pod.IsBound() {
			c.Bound[pod.Pool] += pod.Milli
			continue
		}
		if !pod.Queued {
			c.Unscheduled[pod.Pool] += pod.Milli
		}
		if !pod.Deleting {
			c.PendingSince = earliest(c.PendingSince, pod.CreatedAt)
		}
		if pod.Admitted {
			c.Bound[pod.Pool] += pod.Milli
			continue
		}
		c.Unbound[pod.Pool] += pod.Milli
		if !pod.Deleting {
			c.Pending[pod.Pool] += pod.Milli
		}
	}
	return c
}

// oldestPending returns since when the longest pending workload or pod is pending; zero if none is.
func (s *ObservedState) oldestPending() time.Time {
	oldest := s.Charges.PendingSince
	for i := range s.Rejected {
		oldest = earliest(oldest, s.Rejected[i].Since)
	}
	for i := range s.Queued {
		oldest = earliest(oldest, s.Queued[i].Since)
	}
	return oldest
}

// earliest returns the earlier of two times. A zero time is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// allocatedByPool returns the allocated GPU quota in total and by node pool: that of bound and of admitted pods.
// Pods without a node are pending and do not count twice. If a pool has its own quota resource,
// the exact value of the ResourceQuota is used. If several pools share one, the quota has only
// their sum, and the pods determine each pool's part. Where the quota counts none, as on
// KAI-Scheduler, or has a limit of 0, as of a scheduler that the pool had before, the pods
// determine both.
func (c PodCharges) allocatedByPool(project *v1alpha1.Project, quota *corev1.ResourceQuota) (all workload.Milli, in poolCharges) {
	in = poolCharges{}
	var bound, unbound workload.Milli
	for _, pool := range project.Spec.NodePools {
		limit, used, _ := apply.EnforcedLimit(quota, v1alpha1.ResourceGPUMilliFor(pool.Name))
		if limit == 0 {
			in[pool.Name] = c.Bound[pool.Name]
			bound, unbound = bound+c.Bound[pool.Name], unbound+c.Unbound[pool.Name]
			continue
		}
		in[pool.Name] = max(0, workload.Milli(used)-c.Unbound[pool.Name])
		all += in[pool.Name]
	}
	if limit, shared, _ := apply.EnforcedLimit(quota, v1alpha1.ResourceGPUMilli); limit > 0 {
		bound = max(0, workload.Milli(shared)-unbound)
	}
	return all + bound, in
}
