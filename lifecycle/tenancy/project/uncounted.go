// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/policies/input"
)

// ReasonAllCounted: the project's quota counts each of its GPU pods.
const ReasonAllCounted = "AllCounted"

// maxListedPods is the number of pods that a condition names; it counts the others.
const maxListedPods = 10

// UncountedPod is a GPU pod that the quota does not count, or not in full: it is older
// than the adoption of the namespace, or than its pool's quota resource, or it was deleted by
// force and holds its GPUs.
type UncountedPod struct {
	// Pod is its name.
	Pod string
	// Pool is the project's pool whose GPUs the pod holds, or empty.
	Pool string
	// Uncharged is what the pod holds there without being charged; 0 without a pool.
	Uncharged workload.Milli
	// Preemptible reports that the pod may be preempted, so that it may exceed the guarantee.
	Preemptible bool
	// Gone reports that the API server no longer has the pod, and a node still reports its GPUs as held.
	Gone bool
}

// observeUncounted finds uncounted pods on the API server. It returns false if an earlier
// pass found none for the pools' present quota resources: later pods are counted at
// admission. It always observes a namespace that is not governed, where more may come.
func (r *Reconciler) observeUncounted(
	ctx context.Context, project *v1alpha1.Project, pools []input.NodePool, governed bool,
) ([]UncountedPod, bool, error) {
	known := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionUncounted)
	if governed && known != nil && known.Status == metav1.ConditionFalse && known.Message == allCountedMessage(pools) {
		return nil, false, nil
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(project.NamespaceName())); err != nil {
		return nil, false, fmt.Errorf("list the pods of namespace %s that no quota counts: %w", project.NamespaceName(), err)
	}
	var all v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, false, fmt.Errorf("list node pools: %w", err)
	}
	nodes := map[string]*corev1.Node{}
	for i := range pods.Items {
		name := pods.Items[i].Spec.NodeName
		if _, done := nodes[name]; done || name == "" {
			continue
		}
		var node corev1.Node
		err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &node)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, false, fmt.Errorf("read node %s: %w", name, err)
		}
		nodes[name] = &node
	}
	units := workload.NewListedResources(all.Items, nil).Units()
	uncounted := FindUncounted(pods.Items, units, pools, func(node string) []string {
		return inventory.PoolsForNode(nodes[node], all.Items)
	})
	// Without governance, more uncounted pods may come.
	return uncounted, governed || len(uncounted) > 0, nil
}

// FindUncounted returns the pods that hold GPUs, by these units, without being counted, sorted by
// name. The pools are the project's; poolsForNode returns the names of the pools that select a node.
func FindUncounted(
	pods []corev1.Pod, units workload.ResourceUnits, pools []input.NodePool, poolsForNode func(node string) []string,
) []UncountedPod {
	var uncounted []UncountedPod
	for i := range pods {
		pod := &pods[i]
		if workload.IsPodTerminal(pod) {
			continue
		}
		request, err := units.ParsePod(pod)
		if err == nil && !request.RequestsGPU() {
			continue
		}
		found := UncountedPod{Pod: pod.Name, Preemptible: preemptibleClasses[pod.Spec.PriorityClassName]}
		if pool := poolForPod(pod, pools, poolsForNode); pool != nil {
			charged := requestedQuota(pod, pool.QuotaResource)
			found.Pool, found.Uncharged = pool.Name, ComputeCharge(request, pool)-charged
			// Without GPU models there are no prices, and the charge of admission holds.
			if found.Uncharged <= 0 || charged > 0 && len(pool.Products) == 0 {
				continue
			}
		} else if requestsQuotaResource(pod) {
			continue // of a pool that the project no longer has
		}
		uncounted = append(uncounted, found)
	}
	slices.SortFunc(uncounted, func(a, b UncountedPod) int { return cmp.Compare(a.Pod, b.Pod) })
	return uncounted
}

// preemptibleClasses are the priority classes whose pods may be preempted.
var preemptibleClasses = map[string]bool{
	v1alpha1.PriorityClassTrain: true, v1alpha1.PriorityClassInteractivePreemptible: true,
}

// poolForPod returns the pool of the pod's node. For a pod without a node it returns the
// pool that the pod selects, or the first that it may be scheduled to; else nil.
func poolForPod(pod *corev1.Pod, pools []input.NodePool, poolsForNode func(string) []string) *input.NodePool {
	find := func(match func(*input.NodePool) bool) *input.NodePool {
		for i := range pools {
			if match(&pools[i]) {
				return &pools[i]
			}
		}
		return nil
	}
	if pod.Spec.NodeName != "" {
		names := poolsForNode(pod.Spec.NodeName)
		return find(func(p *input.NodePool) bool { return len(names) == 1 && names[0] == p.Name })
	}
	if name := pod.Labels[v1alpha1.LabelNodePool]; name != "" {
		return find(func(p *input.NodePool) bool { return p.Name == name })
	}
	return find(func(p *input.NodePool) bool { return selectorMayMatch(pod.Spec.NodeSelector, p.NodeSelector) })
}

// selectorMayMatch reports whether a pod's node selector allows nodes with these labels.
func selectorMayMatch(selector, labels map[string]string) bool {
	for key, value := range labels {
		if wanted, ok := selector[key]; ok && wanted != value {
			return false
		}
	}
	return true
}

func requestsQuotaResource(pod *corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		for name := range pod.Spec.Containers[i].Resources.Requests {
			if v1alpha1.IsGPUMilli(name) {
				return true
			}
		}
	}
	return false
}

// sumUncountedByPool returns what the pods hold of each pool.
func sumUncountedByPool(uncounted []UncountedPod) map[string]workload.Milli {
	sums := map[string]workload.Milli{}
	for _, pod := range uncounted {
		if pod.Pool != "" {
			sums[pod.Pool] += pod.Uncharged
		}
	}
	return sums
}

// DeductUncounted returns the pools for which the quota is rendered. What uncounted pods
// hold is subtracted from the limit; what is not preemptible also from the guarantee.
func DeductUncounted(pools []input.NodePool, uncounted []UncountedPod) []input.NodePool {
	reduced := slices.Clone(pools)
	for i := range reduced {
		pool := &reduced[i]
		for _, pod := range uncounted {
			if pod.Pool != pool.Name {
				continue
			}
			pool.Limit = max(0, pool.Limit-pod.Uncharged)
			if !pod.Preemptible {
				pool.Guaranteed = max(0, pool.Guaranteed-pod.Uncharged)
			}
		}
		pool.Guaranteed = min(pool.Guaranteed, pool.Limit)
	}
	return reduced
}

// exceededLimits returns why a namespace with these pods cannot be governed yet: they
// hold more than the limit. Else it returns nil.
func exceededLimits(pools []input.NodePool, uncounted []UncountedPod) *problem {
	sums := sumUncountedByPool(uncounted)
	var texts []string
	for i := range pools {
		if pool := &pools[i]; sums[pool.Name] > pool.Limit {
			texts = append(texts, fmt.Sprintf("hold %s of node pool %s, and the project may have %s there",
				sums[pool.Name].Describe(), pool.Name, pool.Limit.Describe()))
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return &problem{v1alpha1.ReasonUncountedPodsExceedLimit, fmt.Sprintf(
		"the namespace is governed once there is room for the GPU pods in it, %s: they %s; the adoption continues by itself as "+
			"they end, or an administrator of the department may raise the limit",
		formatPodNames(uncounted), strings.Join(texts, "; "))}
}

// formatPodNames lists the pods, shortened.
func formatPodNames(uncounted []UncountedPod) string {
	names := make([]string, 0, maxListedPods)
	for _, pod := range uncounted[:min(maxListedPods, len(uncounted))] {
		names = append(names, pod.Pod)
	}
	list := strings.Join(names, ", ")
	if len(uncounted) > maxListedPods {
		list += fmt.Sprintf(" and %d more", len(uncounted)-maxListedPods)
	}
	return list
}

// allCountedMessage returns the message for no uncounted pods. It names the quota
// resources, since pods may be uncounted in another one.
func allCountedMessage(pools []input.NodePool) string {
	resources := make([]string, 0, len(pools))
	for i := range pools {
		resources = append(resources, string(pools[i].QuotaResource))
	}
	slices.Sort(resources)
	if resources = slices.Compact(resources); len(resources) == 0 {
		return "there are no node pools in which GPU pods would be counted"
	}
	return "every GPU pod is counted, in " + strings.Join(resources, ", ")
}

func uncountedCondition(pools []input.NodePool, uncounted []UncountedPod) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionUncounted, Status: metav1.ConditionFalse, Reason: ReasonAllCounted,
		Message: allCountedMessage(pools),
	}
	if len(uncounted) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonPodsUncounted
	sums := sumUncountedByPool(uncounted)
	var off []string
	for i := range pools {
		if sum := sums[pools[i].Name]; sum > 0 {
			off = append(off, fmt.Sprintf("%s of node pool %s", sum.Describe(), pools[i].Name))
		}
	}
	gone := slices.DeleteFunc(slices.Clone(uncounted), func(pod UncountedPod) bool { return !pod.Gone })
	older := slices.DeleteFunc(slices.Clone(uncounted), func(pod UncountedPod) bool { return pod.Gone })
	var what []string
	if len(older) > 0 {
		what = append(what, "GPU pods that were there before the quota, which does not count them: "+formatPodNames(older))
	}
	if len(gone) > 0 {
		what = append(what, "pods that were deleted by force and whose GPUs are still held, as their nodes report: "+formatPodNames(gone))
	}
	c.Message = strings.Join(what, "; ")
	if len(off) > 0 {
		c.Message += "; until they are gone the project's limit is lower by what they hold, " + strings.Join(off, " and ")
	}
	if len(older) > 0 {
		c.Message += "; delete them, and what their controllers start in their place is counted"
	}
	return c
}
