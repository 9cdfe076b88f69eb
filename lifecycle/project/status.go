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
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render"
)

// Status is the project's status after one pass. The phase's time is policy
// time, a condition's is machine time.
func Status(project *v1alpha1.Project, outcome Outcome, policy, machine metav1.Time) v1alpha1.ProjectStatus {
	status := *project.Status.DeepCopy()
	status.ObservedGeneration = project.Generation
	phase := v1alpha1.ProjectActive
	var conditions []metav1.Condition
	if project.DeletionTimestamp.IsZero() {
		conditions = outcome.conditions(project)
		if outcome.Refusal == nil {
			status.GPU, status.NodePools = Use(project, outcome.Pools, outcome.Quotas, outcome.Strays)
		}
	} else {
		phase = v1alpha1.ProjectDeleting
		conditions = []metav1.Condition{condition(v1alpha1.ConditionReady, "", "",
			problem{ReasonDeleting, fmt.Sprintf("waiting for namespace %s to go", project.NamespaceName())})}
	}
	if status.Phase != phase {
		status.Phase, status.PhaseSince = phase, &policy
	}
	for _, c := range conditions {
		c.ObservedGeneration, c.LastTransitionTime, c.Message = project.Generation, machine, render.Clip(c.Message)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func (r *Reconciler) writeStatus(ctx context.Context, project *v1alpha1.Project, outcome Outcome) error {
	status := Status(project, outcome, metav1.NewTime(r.Clock.Now()), metav1.NewTime(clock.MachineNow()))
	if equality.Semantic.DeepEqual(status, project.Status) {
		return nil
	}
	project.Status = status
	if err := r.Client.Status().Update(ctx, project); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of project %s: %w", project.Name, err)
	}
	return nil
}
