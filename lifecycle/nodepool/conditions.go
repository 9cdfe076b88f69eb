// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Reasons in a NodePool's conditions, beside those of the API.
const (
	// ReasonNoGPUs: there are nodes, and none says that it has a GPU.
	ReasonNoGPUs = "NoGPUs"
	// ReasonGPUsKnown: the GPUs of every node are known.
	ReasonGPUsKnown = "GPUsKnown"
	// ReasonSchedulerMissing: no policy writes for the scheduler.
	ReasonSchedulerMissing = "SchedulerMissing"
	// ReasonPolicyFailed: a policy could not be asked what it requires.
	ReasonPolicyFailed = "PolicyFailed"
)

// named is how many nodes a message names before it only counts.
const named = 5

// Status is the pool's status after an observation. Transition times are kept
// where a condition did not change. What could not be looked at stays as it was.
func Status(pool *v1alpha1.NodePool, seen Observation, service Service, now metav1.Time) v1alpha1.NodePoolStatus {
	status := *pool.Status.DeepCopy()
	status.ObservedGeneration = pool.Generation
	status.Nodes, status.GPUs, status.Boards = seen.Nodes, seen.Machine.GPUs, seen.Machine.Boards
	conditions := []metav1.Condition{ready(pool, seen), unsupported(pool, service)}
	if service.Unseen == nil {
		status.Settings = settings(pool, service)
		conditions = append(conditions, required(pool, seen, service))
	}
	for _, condition := range conditions {
		condition.ObservedGeneration = pool.Generation
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func ready(pool *v1alpha1.NodePool, seen Observation) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case len(seen.Contested) > 0:
		condition.Reason = v1alpha1.ReasonNodesShared
		condition.Message = "a node that two pools select belongs to neither: " + list(seen.Contested) +
			"; change spec.nodeSelector or the nodes' labels"
	case seen.Nodes == 0:
		condition.Reason = v1alpha1.ReasonNoNodes
		condition.Message = "no node has the labels of spec.nodeSelector: " + metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: pool.Spec.NodeSelector})
	case seen.Machine.GPUs == 0 && len(seen.Unusable) > 0:
		condition.Reason = v1alpha1.ReasonGPUsUnknown
		condition.Message = list(seen.Unusable)
	case seen.Machine.GPUs == 0:
		condition.Reason = ReasonNoGPUs
		condition.Message = fmt.Sprintf("nodes: %d, and each of them says that it has no GPU", seen.Nodes)
	default:
		condition.Status = metav1.ConditionTrue
		condition.Reason = v1alpha1.ReasonReady
		condition.Message = fmt.Sprintf("GPUs: %d, nodes: %d", seen.Machine.GPUs, seen.Nodes)
	}
	return condition
}

// unsupported says what the pool asks for and nobody does.
func unsupported(pool *v1alpha1.NodePool, service Service) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionUnsupported, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSupported}
	if !service.Supported {
		condition.Status = metav1.ConditionTrue
		condition.Reason = ReasonSchedulerMissing
		condition.Message = fmt.Sprintf("no policy %s%s is in force, and without it nothing is written for spec.scheduler %s; those in force are for %s",
			schedulers, pool.Spec.Scheduler, pool.Spec.Scheduler, cmp.Or(strings.Join(service.Others, ", "), "no scheduler"))
	}
	return condition
}

func list(items []string) string {
	if len(items) > named {
		return fmt.Sprintf("%s; and %d more", strings.Join(items[:named], "; "), len(items)-named)
	}
	return strings.Join(items, "; ")
}
