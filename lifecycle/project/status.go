// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// ReasonDeleting: the project is being deleted; it is a reason of Ready beside
// those of a refusal.
const ReasonDeleting = "Deleting"

// Status is the project's status after one pass that ended in refusal, or in
// success where that is nil. The phase's time is policy time, a condition's is
// machine time.
func Status(project *v1alpha1.Project, refusal *tenancy.Refusal, policy, machine metav1.Time) v1alpha1.ProjectStatus {
	status := *project.Status.DeepCopy()
	status.ObservedGeneration = project.Generation
	phase := v1alpha1.ProjectActive
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		ObservedGeneration: project.Generation,
		LastTransitionTime: machine,
	}
	switch {
	case !project.DeletionTimestamp.IsZero():
		phase = v1alpha1.ProjectDeleting
		condition.Status, condition.Reason = metav1.ConditionFalse, ReasonDeleting
		condition.Message = fmt.Sprintf("waiting for namespace %s to go", project.NamespaceName())
	case refusal != nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, refusal.Reason, refusal.Message
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonReady
		condition.Message = fmt.Sprintf("namespace %s is governed", project.NamespaceName())
	}
	if status.Phase != phase {
		status.Phase, status.PhaseSince = phase, &policy
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}

func (r *Reconciler) writeStatus(ctx context.Context, project *v1alpha1.Project, refusal *tenancy.Refusal) error {
	status := Status(project, refusal, metav1.NewTime(r.Clock.Now()), metav1.NewTime(clock.MachineNow()))
	if equality.Semantic.DeepEqual(status, project.Status) {
		return nil
	}
	project.Status = status
	if err := r.Client.Status().Update(ctx, project); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of project %s: %w", project.Name, err)
	}
	return nil
}
