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

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// Reasons in a NodePool's conditions, beside those of the API.
const (
	// ReasonNoGPUs: there are nodes, and none has a GPU.
	ReasonNoGPUs = "NoGPUs"
	// ReasonGPUsKnown: the GPUs of every node are known.
	ReasonGPUsKnown = "GPUsKnown"
	// ReasonPolicyFailed: a policy could not be evaluated for its requirements.
	ReasonPolicyFailed = "PolicyFailed"
)

// fieldManager owns the fields of this controller.
const fieldManager = v1alpha1.FieldManagerLifecycle + "-nodepool"

// statusFields returns this controller's fields of a status. Other controllers own other
// conditions.
func statusFields(pool *v1alpha1.NodePool, status *v1alpha1.NodePoolStatus) *ac.NodePoolApplyConfiguration {
	fields := ac.NodePoolStatus().WithObservedGeneration(status.ObservedGeneration).WithNodes(status.Nodes).WithGPUs(status.GPUs).
		WithSettings(status.Settings).WithTaints(status.Taints...).
		WithConditions(apply.Conditions(status.Conditions,
			v1alpha1.ConditionReady, v1alpha1.ConditionUnsupported, v1alpha1.ConditionRequirementsMet, v1alpha1.ConditionUnlistedResources)...)
	if status.DriverVersion != "" {
		fields.WithDriverVersion(status.DriverVersion)
	}
	for i := range status.NodeKinds {
		k := &status.NodeKinds[i]
		fields.WithNodeKinds(ac.NodeKind().WithProduct(k.Product).WithGPUs(k.GPUs).WithNodes(k.Nodes).WithPerGPU(k.PerGPU))
	}
	for _, unlisted := range status.UnlistedResources {
		entry := ac.UnlistedResource().WithName(unlisted.Name)
		if !unlisted.GoneSince.IsZero() {
			entry.WithGoneSince(unlisted.GoneSince)
		}
		fields.WithUnlistedResources(entry)
	}
	for i := range status.Products {
		m := &status.Products[i]
		model := ac.GPUModel().WithName(m.Name).WithMemoryMiB(m.MemoryMiB).WithGPUs(m.GPUs).WithMIGProfiles(m.MIGProfiles...)
		if m.Replicas != 0 {
			model.WithReplicas(m.Replicas)
		}
		if m.ReplicaResource != "" {
			model.WithReplicaResource(m.ReplicaResource)
		}
		fields.WithProducts(model)
	}
	return ac.NodePool(pool.Name).WithStatus(fields)
}

// maxListedItems is the number of nodes that a message names; it counts the others.
const maxListedItems = 5

// BuildStatus returns the pool's status after an observation. A condition that did not
// change keeps its transition time; what could not be observed keeps its value.
func BuildStatus(pool *v1alpha1.NodePool, observation Observation, support SchedulerSupport, now metav1.Time) v1alpha1.NodePoolStatus {
	status := *pool.Status.DeepCopy()
	status.ObservedGeneration = pool.Generation
	status.Nodes, status.GPUs, status.Products = observation.Nodes, observation.Inventory.GPUs, observation.Inventory.GPUModels
	status.DriverVersion = observation.Inventory.DriverVersion
	status.NodeKinds, status.Taints = observation.NodeKinds, observation.Taints
	status.UnlistedResources = observation.UnlistedResources
	observed := *pool
	observed.Status = status
	conditions := []metav1.Condition{
		readyCondition(pool, observation), unsupportedCondition(&observed, observation, support), unlistedCondition(observation),
	}
	if support.CheckErr == nil {
		status.Settings = mergeSettings(pool, support)
		conditions = append(conditions, requirementsCondition(pool, observation, support))
	}
	for _, condition := range conditions {
		condition.ObservedGeneration = pool.Generation
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func readyCondition(pool *v1alpha1.NodePool, observation Observation) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case len(observation.SharedNodes) > 0:
		condition.Reason = v1alpha1.ReasonNodeSelectorConflict
		condition.Message = "a node that two pools select belongs to neither: " + joinLimited(observation.SharedNodes) +
			"; change spec.nodeSelector or the nodes' labels"
	case observation.Nodes == 0:
		condition.Reason = v1alpha1.ReasonNoNodes
		condition.Message = "no node has the labels of spec.nodeSelector: " +
			metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: pool.Spec.NodeSelector})
	case observation.Inventory.GPUs == 0 && len(observation.UnknownGPUs) > 0:
		condition.Reason = v1alpha1.ReasonGPUCountUnknown
		condition.Message = joinLimited(observation.UnknownGPUs)
	case observation.Inventory.GPUs == 0:
		condition.Reason = ReasonNoGPUs
		condition.Message = fmt.Sprintf("nodes: %d, and none of them reports a GPU", observation.Nodes)
	default:
		condition.Status = metav1.ConditionTrue
		condition.Reason = v1alpha1.ReasonReady
		condition.Message = fmt.Sprintf("GPUs: %d, nodes: %d", observation.Inventory.GPUs, observation.Nodes)
	}
	return condition
}

// unsupportedCondition reports whether a policy supports the pool's scheduler, and else the fields
// that have no effect yet and what its sharing and its scheduler do not do. Pods are accepted all the same with
// these.
func unsupportedCondition(pool *v1alpha1.NodePool, observation Observation, support SchedulerSupport) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionUnsupported, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSupported}
	fields := tenancy.UnsupportedInNodePool(pool)
	switch {
	case !support.Supported:
		condition.Status = metav1.ConditionTrue
		condition.Reason = v1alpha1.ReasonSchedulerMissing
		condition.Message = fmt.Sprintf("no policy %s%s is in force, so that nothing is written for spec.scheduler %s; the "+
			"policies in force support %s",
			schedulerPolicyPrefix, pool.Spec.Scheduler, pool.Spec.Scheduler, cmp.Or(strings.Join(support.SupportedSchedulers, ", "), "no scheduler"))
	default:
		gaps := gapsOf(pool, observation)
		if len(fields) > 0 {
			gaps = append([]gap{{v1alpha1.ReasonFieldsWithoutEffect, tenancy.DescribeUnsupported(fields)}}, gaps...)
		}
		if len(gaps) == 0 {
			return condition
		}
		condition.Status, condition.Reason = metav1.ConditionTrue, gaps[0].reason
		messages := make([]string, 0, len(gaps))
		for _, gap := range gaps {
			messages = append(messages, gap.reason+": "+gap.message)
		}
		condition.Message = apply.TruncateMessage(strings.Join(messages, "; "))
	}
	return condition
}

func joinLimited(items []string) string {
	if len(items) > maxListedItems {
		return fmt.Sprintf("%s; and %d more", strings.Join(items[:maxListedItems], "; "), len(items)-maxListedItems)
	}
	return strings.Join(items, "; ")
}

// requirementsCondition reports the missing requirements of the pool's scheduler, else
// the nodes with unknown GPUs, else the policies whose requirements are unknown, else the
// requirements without which the pool accepts pods.
func requirementsCondition(pool *v1alpha1.NodePool, observation Observation, support SchedulerSupport) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionRequirementsMet, Status: metav1.ConditionFalse}
	missing := support.Findings.Messages()
	failed := make([]string, 0, len(support.Failures))
	for _, failure := range support.Failures {
		failed = append(failed, fmt.Sprintf("policy %s could not be evaluated for its requirements: %v", failure.Policy, failure.Err))
	}
	switch {
	case support.Findings.IsBlocking():
		condition.Reason, condition.Message = v1alpha1.ReasonRequirementsMissing, strings.Join(missing, "; ")
	case len(failed) > 0 && hadMissingRequirements(pool):
		// What was missing may still be missing.
		return *meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionRequirementsMet)
	case len(observation.UnknownGPUs) > 0:
		condition.Reason = v1alpha1.ReasonGPUCountUnknown
		condition.Message = strings.Join(append([]string{joinLimited(observation.UnknownGPUs)}, missing...), "; ")
	case len(failed) > 0:
		condition.Status = metav1.ConditionUnknown
		condition.Reason, condition.Message = ReasonPolicyFailed, joinLimited(failed)
	case len(missing) > 0:
		condition.Reason = v1alpha1.ReasonRecommendationsMissing
		condition.Message = "the node pool accepts pods; " + strings.Join(missing, "; ")
	default:
		condition.Status = metav1.ConditionTrue
		condition.Reason, condition.Message = ReasonGPUsKnown, "the GPUs of every node are known"
		if support.RequirementCount > 0 {
			condition.Message += fmt.Sprintf(", and %s meets its requirements", pool.Spec.Scheduler)
		}
	}
	condition.Message = apply.TruncateMessage(condition.Message)
	return condition
}

func hadMissingRequirements(pool *v1alpha1.NodePool) bool {
	before := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionRequirementsMet)
	return before != nil && before.Status == metav1.ConditionFalse && before.Reason == v1alpha1.ReasonRequirementsMissing
}

// maxSettings is the most that the schema allows.
const maxSettings = 32

// mergeSettings returns the settings in the scheduler's configuration. If policies
// failed, settings that were not found keep their values.
func mergeSettings(pool *v1alpha1.NodePool, support SchedulerSupport) map[string]string {
	found := support.Findings.Settings
	if len(support.Failures) == 0 || len(pool.Status.Settings) == 0 {
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
