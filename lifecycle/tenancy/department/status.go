// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// BuildStatus returns the department's status with these projects and all node pools.
// A condition that did not change keeps its transition time.
func BuildStatus(
	department *v1alpha1.Department, projects []v1alpha1.Project, pools []v1alpha1.NodePool, now metav1.Time,
) v1alpha1.DepartmentStatus {
	status := *department.Status.DeepCopy()
	status.ObservedGeneration = department.Generation
	status.Projects = int32(len(projects))
	status.GPU, status.NodePools = ComputeUsage(department, projects)
	status.PoolSummary = v1alpha1.SummarizePools(status.NodePools)
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message:            "all node pools of spec.nodePools exist",
		ObservedGeneration: department.Generation, LastTransitionTime: now,
	}
	if missing := missingNodePools(department, pools); len(missing) > 0 {
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonNodePoolNotFound
		ready.Message = fmt.Sprintf("spec.nodePools: there is no node pool %s; create it, or remove it from the list",
			strings.Join(missing, ", "))
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	meta.SetStatusCondition(&status.Conditions, OversubscribedCondition(department, projects, now))
	meta.SetStatusCondition(&status.Conditions, UnsupportedCondition(department, pools, now))
	return status
}

// fieldManager owns the fields of this controller.
const fieldManager = v1alpha1.FieldManagerLifecycle + "-department"

// statusFields returns this controller's fields of a status. Other controllers own other
// conditions.
func statusFields(department *v1alpha1.Department, status *v1alpha1.DepartmentStatus) *ac.DepartmentApplyConfiguration {
	fields := ac.DepartmentStatus().WithObservedGeneration(status.ObservedGeneration).WithProjects(status.Projects).
		WithGPU(ac.GPUUsage().WithGuaranteed(status.GPU.Guaranteed).WithLimit(status.GPU.Limit).WithAllocated(status.GPU.Allocated).
			WithOverQuota(status.GPU.OverQuota).WithPending(status.GPU.Pending)).
		WithConditions(apply.Conditions(status.Conditions,
			v1alpha1.ConditionReady, v1alpha1.ConditionOversubscribed, v1alpha1.ConditionUnsupported)...)
	if status.PoolSummary != "" {
		fields.WithPoolSummary(status.PoolSummary)
	}
	for i := range status.NodePools {
		pool := &status.NodePools[i]
		fields.WithNodePools(ac.PoolUsage().WithName(pool.Name).WithGuaranteed(pool.Guaranteed).WithLimit(pool.Limit).
			WithAllocated(pool.Allocated).WithOverQuota(pool.OverQuota).WithPending(pool.Pending).WithUncounted(pool.Uncounted))
	}
	return ac.Department(department.Name).WithStatus(fields)
}

func missingNodePools(department *v1alpha1.Department, pools []v1alpha1.NodePool) []string {
	var names []string
	for _, quota := range department.Spec.NodePools {
		if !slices.ContainsFunc(pools, func(pool v1alpha1.NodePool) bool { return pool.Name == quota.Name }) {
			names = append(names, quota.Name)
		}
	}
	return names
}

// OversubscribedCondition reports whether the guarantees of the department's projects,
// which are among projects, exceed its quota. Admission refuses that, but not for two
// projects that are created at the same time.
func OversubscribedCondition(department *v1alpha1.Department, projects []v1alpha1.Project, now metav1.Time) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionOversubscribed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWithinQuota,
		Message:            "the guarantees of its projects are within its quota",
		ObservedGeneration: department.Generation, LastTransitionTime: now,
	}
	excess := tenancy.DescribeOversubscription(tenancy.Subscriptions(department, projects, nil, ""))
	switch {
	case excess == "":
	case department.Spec.Oversubscription == v1alpha1.OversubscriptionAllow:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonAllowed
		condition.Message = "as spec.oversubscription allows, its projects cannot all have their guarantees at once: " + excess
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonGuaranteesExceedQuota
		condition.Message = excess + "; lower the guarantees of its projects, or set spec.oversubscription to Allow"
	}
	return condition
}

// UnsupportedCondition reports what the schedulers of the department's node pools do not support: kube-scheduler preempts
// no training for a guarantee.
func UnsupportedCondition(department *v1alpha1.Department, pools []v1alpha1.NodePool, now metav1.Time) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionUnsupported, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSupported,
		Message:            "all fields are supported",
		ObservedGeneration: department.Generation, LastTransitionTime: now,
	}
	var guarantees []string
	for _, quota := range department.Spec.NodePools {
		if schedulerOfPool(quota.Name, pools) == v1alpha1.SchedulerKube && !quota.GPU.Guaranteed.IsZero() {
			guarantees = append(guarantees, quota.Name)
		}
	}
	if len(guarantees) > 0 {
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonTrainingGuaranteeUnsupported
		condition.Message = fmt.Sprintf("with kube-scheduler the guarantee in node pool %s holds for interactive work and "+
			"inference; training gets it only while there is room. Kueue and KAI support it: see spec.scheduler of the node pool",
			strings.Join(guarantees, ", "))
	}
	return condition
}

func schedulerOfPool(name string, pools []v1alpha1.NodePool) v1alpha1.Scheduler {
	for i := range pools {
		if pools[i].Name == name {
			return pools[i].Spec.Scheduler
		}
	}
	return ""
}

// ComputeUsage returns the department's quota with its projects' usage, over all pools
// and in each of its own. Usage that a project does not report by pool is in the sum.
func ComputeUsage(department *v1alpha1.Department, projects []v1alpha1.Project) (v1alpha1.GPUUsage, []v1alpha1.PoolUsage) {
	var all v1alpha1.GPUUsage
	byName := map[string]*v1alpha1.PoolUsage{}
	each := make([]v1alpha1.PoolUsage, len(department.Spec.NodePools))
	for i := range department.Spec.NodePools {
		quota := &department.Spec.NodePools[i]
		each[i] = v1alpha1.PoolUsage{Name: quota.Name}
		each[i].Guaranteed, each[i].Limit = quota.GPU.Guaranteed, quota.GPU.MaxInUse()
		byName[quota.Name] = &each[i]
		all.Guaranteed.Add(quota.GPU.Guaranteed)
		all.Limit.Add(quota.GPU.MaxInUse())
	}
	for i := range projects {
		status := &projects[i].Status
		all.Allocated.Add(status.GPU.Allocated)
		all.Pending.Add(status.GPU.Pending)
		for j := range status.NodePools {
			// A pool that was removed from the department may still be in use.
			if use, known := &status.NodePools[j], byName[status.NodePools[j].Name]; known != nil {
				known.Allocated.Add(use.Allocated)
				known.Pending.Add(use.Pending)
				known.Uncounted.Add(use.Uncounted)
			}
		}
	}
	normalizeUsage(&all)
	v1alpha1.SetOverQuota(&all, each)
	for i := range each {
		normalizeUsage(&each[i].GPUUsage)
		each[i].Uncounted = normalizeQuantity(each[i].Uncounted)
	}
	return all, each
}

func normalizeUsage(use *v1alpha1.GPUUsage) {
	use.Guaranteed, use.Limit = normalizeQuantity(use.Guaranteed), normalizeQuantity(use.Limit)
	use.Allocated, use.Pending = normalizeQuantity(use.Allocated), normalizeQuantity(use.Pending)
}

// normalizeQuantity returns the quantity in the form 500m, 1 or 1500m.
func normalizeQuantity(q resource.Quantity) resource.Quantity {
	return *resource.NewMilliQuantity(q.MilliValue(), resource.DecimalSI)
}
