// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Unsupported tells what the department asks for and the engines of its node pools
// cannot do. Kubernetes' own scheduler has no queue and knows no departments: the
// API server counts each project alone, and nobody gets back what training holds.
func Unsupported(department *v1alpha1.Department, projects []v1alpha1.Project, pools []v1alpha1.NodePool, now metav1.Time) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionUnsupported, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSupported,
		Message:            "the engines of its node pools can do all that it asks for",
		ObservedGeneration: department.Generation, LastTransitionTime: now,
	}
	var limits, guarantees []string
	for _, quota := range department.Spec.NodePools {
		if schedulerOf(quota.Name, pools) != v1alpha1.SchedulerKube {
			continue
		}
		if most := mostOf(projects, quota.Name); most.Cmp(quota.GPU.Limit) > 0 {
			limits = append(limits, fmt.Sprintf("the limits of its projects in node pool %s add up to %s, and its own of %s is not held: each project is counted alone",
				quota.Name, most.String(), quota.GPU.Limit.String()))
		}
		if !quota.GPU.Guaranteed.IsZero() {
			guarantees = append(guarantees, quota.Name)
		}
	}
	reasons := limits
	if len(limits) > 0 {
		condition.Reason = v1alpha1.ReasonDepartmentLimit
	}
	if len(guarantees) > 0 {
		condition.Reason = v1alpha1.ReasonGuaranteedTraining
		reasons = append(reasons, fmt.Sprintf("what is guaranteed in node pool %s is so for interactive work and inference; training has it as far as there is room",
			strings.Join(guarantees, ", ")))
	}
	if len(reasons) == 0 {
		return condition
	}
	if len(limits) > 0 && len(guarantees) > 0 {
		condition.Reason = v1alpha1.ReasonSeveral
	}
	condition.Status = metav1.ConditionTrue
	condition.Message = "with kube-scheduler " + strings.Join(reasons, "; ") + ". Kueue and KAI can do both: see spec.scheduler of the node pool"
	return condition
}

func schedulerOf(name string, pools []v1alpha1.NodePool) v1alpha1.Scheduler {
	for i := range pools {
		if pools[i].Name == name {
			return pools[i].Spec.Scheduler
		}
	}
	return ""
}

// mostOf is what the projects may have of a pool together.
func mostOf(projects []v1alpha1.Project, pool string) (sum resource.Quantity) {
	for i := range projects {
		for _, quota := range projects[i].Spec.NodePools {
			if quota.Name == pool {
				sum.Add(quota.GPU.Most())
			}
		}
	}
	return plain(sum)
}
