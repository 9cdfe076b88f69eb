// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/rendering/apply"
)

const (
	// unlistedTTL is the time for which a resource counts as offered after the last node stopped
	// offering it: pods that request it may be pending, and a device plugin returns.
	unlistedTTL = 24 * time.Hour
	// unlistedRequeue is for pods that get such a resource later, which no event announces.
	unlistedRequeue = time.Minute
	// maxUnlistedResources is the most that the schema allows, and maxUnlistedNodes the number of
	// nodes whose pods are read from the API server.
	maxUnlistedResources, maxUnlistedNodes = 256, 16
)

// Reasons of the condition UnlistedResources.
const (
	ReasonResourcesUnlisted = "ResourcesUnlisted"
	ReasonResourcesListed   = "ResourcesListed"
)

// observeUnlisted adds what the pool's nodes offer and no list knows, and the running pods that have it. A node that
// several pools select counts as well, since pods run on it.
func (r *Reconciler) observeUnlisted(
	ctx context.Context, pool *v1alpha1.NodePool, pools []v1alpha1.NodePool, nodes []corev1.Node, now time.Time, to *Observation,
) error {
	var parameters v1alpha1.AdmissionParameters
	err := r.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get admission parameters: %w", err)
	}
	units := workload.NewListedResources(pools, parameters.Spec.NonGPUResources).Units()
	names, offering := offeredUnlisted(pool, nodes, units)
	to.UnlistedResources = mergeUnlisted(pool.Status.UnlistedResources, names, units, now)
	for _, node := range offering[:min(len(offering), maxUnlistedNodes)] {
		var pods corev1.PodList
		if err := r.Live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
			return fmt.Errorf("list the pods of node %s: %w", node, err)
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Labels[v1alpha1.LabelProject] != "" && units.Requested(pod, names) != "" {
				to.UnlistedPods = append(to.UnlistedPods, pod.Namespace+"/"+pod.Name)
			}
		}
	}
	slices.Sort(to.UnlistedPods)
	return nil
}

// offeredUnlisted returns the resources that nodes of the pool offer and no list knows, and these nodes; both sorted.
func offeredUnlisted(pool *v1alpha1.NodePool, nodes []corev1.Node, units workload.ResourceUnits) (names, offering []string) {
	for i := range nodes {
		if !inventory.SelectsNode(pool, &nodes[i]) {
			continue
		}
		before := len(names)
		for _, list := range []corev1.ResourceList{nodes[i].Status.Capacity, nodes[i].Status.Allocatable} {
			for name, quantity := range list {
				if quantity.Sign() > 0 && units.IsUnlisted(name) {
					names = append(names, string(name))
				}
			}
		}
		if len(names) > before {
			offering = append(offering, nodes[i].Name)
		}
	}
	slices.Sort(names)
	slices.Sort(offering)
	return slices.Compact(names), offering
}

// mergeUnlisted returns the status entries for the resources that nodes offer now, and for those that they offered
// within [unlistedTTL] and that are still in no list.
func mergeUnlisted(
	before []v1alpha1.UnlistedResource, offered []string, units workload.ResourceUnits, now time.Time,
) (merged []v1alpha1.UnlistedResource) {
	for _, name := range offered {
		merged = append(merged, v1alpha1.UnlistedResource{Name: name})
	}
	for _, former := range before {
		if former.GoneSince.IsZero() {
			former.GoneSince = metav1.NewTime(now)
		}
		if now.Sub(former.GoneSince.Time) < unlistedTTL && units.IsUnlisted(corev1.ResourceName(former.Name)) &&
			!slices.Contains(offered, former.Name) {
			merged = append(merged, former)
		}
	}
	merged = merged[:min(len(merged), maxUnlistedResources)] // those that are offered come first
	slices.SortFunc(merged, func(a, b v1alpha1.UnlistedResource) int { return strings.Compare(a.Name, b.Name) })
	return merged
}

func unlistedCondition(observation Observation) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionUnlistedResources, Status: metav1.ConditionFalse, Reason: ReasonResourcesListed,
		Message: "Sluice, a NodePool or the AdmissionParameters know every extended resource of the nodes",
	}
	if len(observation.UnlistedResources) == 0 {
		return condition
	}
	names := make([]string, len(observation.UnlistedResources))
	for i, resource := range observation.UnlistedResources {
		names[i] = resource.Name
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, ReasonResourcesUnlisted
	condition.Message = "nodes offer, or offered in the last 24 hours, what can be a GPU and no list knows: " + joinLimited(names) +
		"; pods of projects that request it are rejected: name a GPU in spec.resources, and what is none in nonGPUResources of the " +
		"AdmissionParameters"
	if len(observation.UnlistedPods) > 0 {
		condition.Message += "; running pods of projects have it, and no quota counts it: " + joinLimited(observation.UnlistedPods)
	}
	condition.Message = apply.TruncateMessage(condition.Message)
	return condition
}
