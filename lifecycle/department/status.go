// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Status is the department's status with these projects, and with the node pools
// that there are. Transition times are kept where a condition did not
// change.
func Status(department *v1alpha1.Department, projects []v1alpha1.Project, pools []v1alpha1.NodePool, now metav1.Time) v1alpha1.DepartmentStatus {
	status := *department.Status.DeepCopy()
	status.ObservedGeneration = department.Generation
	status.Projects = int32(len(projects))
	status.GPU, status.NodePools = Sums(department, projects)
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message:            "the node pools that it names are there",
		ObservedGeneration: department.Generation, LastTransitionTime: now,
	}
	if missing := missing(department, pools); len(missing) > 0 {
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonNodePoolMissing
		ready.Message = fmt.Sprintf("spec.nodePools: there is no node pool %s; create it, or take it out", strings.Join(missing, ", "))
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	meta.SetStatusCondition(&status.Conditions, Oversubscribed(department, projects, now))
	meta.SetStatusCondition(&status.Conditions, Unsupported(department, projects, pools, now))
	return status
}

func missing(department *v1alpha1.Department, pools []v1alpha1.NodePool) []string {
	var names []string
	for _, quota := range department.Spec.NodePools {
		if !slices.ContainsFunc(pools, func(pool v1alpha1.NodePool) bool { return pool.Name == quota.Name }) {
			names = append(names, quota.Name)
		}
	}
	return names
}
