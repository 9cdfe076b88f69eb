// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/policytime"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// BuildStatus returns the project's status after one pass. Package expiry writes the phase.
func BuildStatus(project *v1alpha1.Project, outcome Outcome, machine metav1.Time) v1alpha1.ProjectStatus {
	status := *project.Status.DeepCopy()
	status.ObservedGeneration = project.Generation
	var conditions []metav1.Condition
	if project.DeletionTimestamp.IsZero() {
		conditions = append(outcome.conditions(project), unsupportedConditions(project)...)
		if outcome.ClaimError == nil {
			status.GPU, status.NodePools = ComputeUsage(project, outcome.Pools, outcome.Quotas, outcome.Uncounted)
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

// unsupportedConditions returns the condition Unsupported, or none if the project never set a
// field without effect.
func unsupportedConditions(project *v1alpha1.Project) []metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionUnsupported, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonSupported, Message: "all fields are supported",
	}
	if fields := tenancy.UnsupportedInProject(project); len(fields) > 0 {
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonFieldsWithoutEffect
		condition.Message = tenancy.DescribeUnsupported(fields)
	} else if meta.FindStatusCondition(project.Status.Conditions, condition.Type) == nil {
		return nil
	}
	return []metav1.Condition{condition}
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
			v1alpha1.ConditionReady, v1alpha1.ConditionQuotaApplied, v1alpha1.ConditionQueueApplied,
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
