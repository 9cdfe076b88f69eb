// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
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

// maxListedItems is how many nodes a message names before it only counts.
const maxListedItems = 5

// BuildStatus is the pool's status after an observation. Transition times are kept
// where a condition did not change. What could not be looked at stays as it was.
func BuildStatus(pool *v1alpha1.NodePool, seen Observation, service SchedulerSupport, now metav1.Time) v1alpha1.NodePoolStatus {
	status := *pool.Status.DeepCopy()
	status.ObservedGeneration = pool.Generation
	status.Nodes, status.GPUs, status.Products = seen.Nodes, seen.Inventory.GPUs, seen.Inventory.GPUModels
	conditions := []metav1.Condition{readyCondition(pool, seen), unsupportedCondition(pool, service)}
	if service.CheckErr == nil {
		status.Settings = mergeSettings(pool, service)
		conditions = append(conditions, requirementsCondition(pool, seen, service))
	}
	for _, condition := range conditions {
		condition.ObservedGeneration = pool.Generation
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func readyCondition(pool *v1alpha1.NodePool, seen Observation) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case len(seen.SharedNodes) > 0:
		condition.Reason = v1alpha1.ReasonNodeSelectorConflict
		condition.Message = "a node that two pools select belongs to neither: " + joinLimited(seen.SharedNodes) +
			"; change spec.nodeSelector or the nodes' labels"
	case seen.Nodes == 0:
		condition.Reason = v1alpha1.ReasonNoNodes
		condition.Message = "no node has the labels of spec.nodeSelector: " + metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: pool.Spec.NodeSelector})
	case seen.Inventory.GPUs == 0 && len(seen.UnknownGPUs) > 0:
		condition.Reason = v1alpha1.ReasonGPUCountUnknown
		condition.Message = joinLimited(seen.UnknownGPUs)
	case seen.Inventory.GPUs == 0:
		condition.Reason = ReasonNoGPUs
		condition.Message = fmt.Sprintf("nodes: %d, and each of them says that it has no GPU", seen.Nodes)
	default:
		condition.Status = metav1.ConditionTrue
		condition.Reason = v1alpha1.ReasonReady
		condition.Message = fmt.Sprintf("GPUs: %d, nodes: %d", seen.Inventory.GPUs, seen.Nodes)
	}
	return condition
}

// unsupportedCondition says what the pool asks for and nobody does.
func unsupportedCondition(pool *v1alpha1.NodePool, service SchedulerSupport) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionUnsupported, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSupported}
	if !service.Supported {
		condition.Status = metav1.ConditionTrue
		condition.Reason = ReasonSchedulerMissing
		condition.Message = fmt.Sprintf("no policy %s%s is in force, and without it nothing is written for spec.scheduler %s; those in force are for %s",
			schedulerPolicyPrefix, pool.Spec.Scheduler, pool.Spec.Scheduler, cmp.Or(strings.Join(service.SupportedSchedulers, ", "), "no scheduler"))
	}
	return condition
}

func joinLimited(items []string) string {
	if len(items) > maxListedItems {
		return fmt.Sprintf("%s; and %d more", strings.Join(items[:maxListedItems], "; "), len(items)-maxListedItems)
	}
	return strings.Join(items, "; ")
}

// requirementsCondition says what the pool's engine lacks, then what is not known of its GPUs,
// then which policies did not say what they need.
func requirementsCondition(pool *v1alpha1.NodePool, seen Observation, service SchedulerSupport) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionRequirementsMet, Status: metav1.ConditionFalse}
	missing := service.Findings.Messages()
	failed := make([]string, 0, len(service.Failures))
	for _, failure := range service.Failures {
		failed = append(failed, fmt.Sprintf("policy %s could not be asked what it requires: %v", failure.Policy, failure.Err))
	}
	switch {
	case len(missing) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonRequirementsMissing, strings.Join(missing, "; ")
	case len(failed) > 0 && hadMissingRequirements(pool):
		// What was missing is not known to be there.
		return *meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionRequirementsMet)
	case len(seen.UnknownGPUs) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonGPUCountUnknown, joinLimited(seen.UnknownGPUs)
	case len(failed) > 0:
		condition.Status = metav1.ConditionUnknown
		condition.Reason, condition.Message = ReasonPolicyFailed, joinLimited(failed)
	default:
		condition.Status = metav1.ConditionTrue
		condition.Reason, condition.Message = ReasonGPUsKnown, "the GPUs of every node are known"
		if service.RequirementCount > 0 {
			condition.Message += fmt.Sprintf(", and %s has what is required of it", pool.Spec.Scheduler)
		}
	}
	condition.Message = apply.TruncateMessage(condition.Message)
	return condition
}

func hadMissingRequirements(pool *v1alpha1.NodePool) bool {
	before := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionRequirementsMet)
	return before != nil && before.Status == metav1.ConditionFalse && before.Reason == v1alpha1.ReasonRequirementsMissing
}

// maxSettings is how many the schema allows.
const maxSettings = 32

// mergeSettings are what was found in the engine's configuration; of policies that could
// not be asked, what was there before.
func mergeSettings(pool *v1alpha1.NodePool, service SchedulerSupport) map[string]string {
	found := service.Findings.Settings
	if len(service.Failures) == 0 || len(pool.Status.Settings) == 0 {
		return found
	}
	all := make(map[string]string, maxSettings)
	maps.Copy(all, found)
	for _, name := range slices.Sorted(maps.Keys(pool.Status.Settings)) {
		if _, known := all[name]; !known && len(all) < maxSettings {
			all[name] = pool.Status.Settings[name]
		}
	}
	return all
}
