// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/input"
)

// BuildStatus returns the project's status after one pass. Package expiry writes the phase.
func BuildStatus(project *v1alpha1.Project, outcome Outcome, machine metav1.Time) v1alpha1.ProjectStatus {
	status := *project.Status.DeepCopy()
	status.ObservedGeneration = project.Generation
	var conditions []metav1.Condition
	if project.DeletionTimestamp.IsZero() {
		conditions = slices.Concat(outcome.conditions(project), otherQuotaConditions(project, outcome), unsupportedConditions(project, outcome))
		if outcome.ClaimError == nil {
			status.GPU, status.NodePools = ComputeUsage(project, outcome.Pools, outcome.Quota, outcome.Uncounted)
		}
	} else {
		waits := outcome.DeletionWaits
		if waits == nil {
			waits = &problem{ReasonDeleting, fmt.Sprintf("waiting for the deletion of namespace %s", project.NamespaceName())}
		}
		conditions = []metav1.Condition{newCondition(v1alpha1.ConditionReady, "", "", *waits)}
	}
	for _, c := range conditions {
		c.ObservedGeneration, c.LastTransitionTime, c.Message = project.Generation, machine, apply.TruncateMessage(c.Message)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

// otherQuotaConditions returns the condition OtherQuotas, or none if the namespace never had another quota.
func otherQuotaConditions(project *v1alpha1.Project, outcome Outcome) []metav1.Condition {
	known := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionOtherQuotas) != nil
	switch {
	case outcome.ClaimError != nil || len(outcome.OtherQuotas) == 0 && !known:
		return nil
	case len(outcome.OtherQuotas) == 0:
		return []metav1.Condition{{
			Type: v1alpha1.ConditionOtherQuotas, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoOtherQuotas,
			Message: "the namespace has no other ResourceQuota",
		}}
	}
	return []metav1.Condition{{
		Type: v1alpha1.ConditionOtherQuotas, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonQuotasFound,
		Message: fmt.Sprintf("namespace %s has other ResourceQuotas than %s: %s. While it has, the API server may admit pods above the limits "+
			"(kubernetes/kubernetes#141904), which are ended again. Delete them; their limits can be added to the project's quota by a policy's "+
			"objects (docs/platform/schedulers.md)", project.NamespaceName(), v1alpha1.QuotaName, joinNames(outcome.OtherQuotas)),
	}}
}

// unsupportedConditions returns the condition Unsupported, or none if the project never needed what has no effect.
func unsupportedConditions(project *v1alpha1.Project, outcome Outcome) []metav1.Condition {
	problems := append(closedInPart(project, outcome.Pools), trainingInGuarantee(outcome)...)
	if len(problems) == 0 && meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionUnsupported) == nil {
		return nil
	}
	condition := newCondition(v1alpha1.ConditionUnsupported, v1alpha1.ReasonSupported, "all fields are supported", problems...)
	condition.Status = metav1.ConditionTrue
	if len(problems) == 0 {
		condition.Status = metav1.ConditionFalse
	}
	return []metav1.Condition{condition}
}

// trainingInGuarantee returns the node pools in which kube-scheduler does not keep the guarantee of what the project runs: it has a
// guarantee there and runs preemptible work, for which kube-scheduler frees no GPUs.
func trainingInGuarantee(outcome Outcome) []problem {
	var names []string
	for i := range outcome.Pools {
		pool := &outcome.Pools[i]
		_, all, counted := apply.EnforcedLimit(outcome.Quota, pool.QuotaResource)
		_, nonPreemptible, _ := apply.EnforcedLimit(outcome.Quota, pool.GuaranteedResource)
		if pool.Scheduler == v1alpha1.SchedulerKube && pool.Guaranteed > 0 && counted && all > nonPreemptible {
			names = append(names, pool.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []problem{{v1alpha1.ReasonTrainingGuaranteeUnsupported, fmt.Sprintf(
		"the guarantee in node pool %s holds within the department's limit, and kube-scheduler frees no GPUs for preemptible work, "+
			"which the project runs: training may wait for GPUs that others hold. With Kueue and KAI-Scheduler it does not",
		strings.Join(names, ", "))}}
}

// closedLimits are what the schedulers cannot do for an expired project, which starts nothing new while its workloads run
// on and their controllers replace pods.
var closedLimits = map[v1alpha1.Scheduler]string{
	v1alpha1.SchedulerKube: "pods that were pending when the project expired can still start",
	v1alpha1.SchedulerKueue: "pods that replace others wait until the project is renewed, except for those of workloads that Kueue " +
		"admits as a whole, such as Jobs",
	v1alpha1.SchedulerKAI: "pods that replace others wait until the project is renewed, and other projects can reclaim GPUs from its " +
		"preemptible pods",
}

// closedInPart returns what the schedulers of an expired project's node pools cannot do. The workloads of a suspended one
// are stopped.
func closedInPart(project *v1alpha1.Project, pools []input.NodePool) []problem {
	if project.Status.ClosedAt == nil || project.StopsWorkloads() != "" {
		return nil
	}
	var problems []problem
	for _, scheduler := range slices.Sorted(maps.Keys(closedLimits)) {
		var names []string
		for i := range pools {
			if pools[i].Scheduler == scheduler {
				names = append(names, pools[i].Name)
			}
		}
		if len(names) > 0 {
			problems = append(problems, problem{v1alpha1.ReasonClosedInPart, fmt.Sprintf(
				"%s, node pool %s: %s", scheduler, strings.Join(names, ", "), closedLimits[scheduler])})
		}
	}
	return problems
}

func (r *Reconciler) updateStatus(ctx context.Context, project *v1alpha1.Project, outcome Outcome) error {
	status := BuildStatus(project, outcome, metav1.NewTime(policytime.MachineNow()))
	return r.applyStatus(ctx, project, &status)
}

// applyStatus applies this controller's fields of a status and keeps them in the project.
func (r *Reconciler) applyStatus(ctx context.Context, project *v1alpha1.Project, status *v1alpha1.ProjectStatus) error {
	cached := statusFields(project, &project.Status)
	if err := apply.Status(ctx, r.Client, fieldManager, cached, statusFields(project, status)); err != nil {
		return fmt.Errorf("write the status of project %s: %w", project.Name, err)
	}
	project.Status = *status
	return nil
}

// fieldManager owns the fields of this controller.
const fieldManager = v1alpha1.FieldManagerLifecycle + "-project"

// statusFields returns this controller's fields of a status. Package pending owns what is
// allocated, over quota and pending, package expiry the phase; other controllers own other conditions.
func statusFields(project *v1alpha1.Project, status *v1alpha1.ProjectStatus) *ac.ProjectApplyConfiguration {
	fields := ac.ProjectStatus().WithObservedGeneration(status.ObservedGeneration).
		WithGPU(ac.GPUUsage().WithGuaranteed(status.GPU.Guaranteed).WithLimit(status.GPU.Limit)).
		WithConditions(apply.Conditions(status.Conditions,
			v1alpha1.ConditionReady, v1alpha1.ConditionQuotaApplied, v1alpha1.ConditionOtherQuotas, v1alpha1.ConditionQueueApplied,
			v1alpha1.ConditionUncounted, v1alpha1.ConditionUnsupported)...)
	if namespace := status.Namespace; namespace != nil {
		fields.WithNamespace(ac.ProjectNamespace().WithName(namespace.Name).WithUID(namespace.UID).WithOrigin(namespace.Origin))
	}
	for i := range status.NodePools {
		pool := &status.NodePools[i]
		fields.WithNodePools(ac.PoolUsage().WithName(pool.Name).
			WithGuaranteed(pool.Guaranteed).WithLimit(pool.Limit).WithUncounted(pool.Uncounted))
	}
	return ac.Project(project.Name).WithStatus(fields)
}
