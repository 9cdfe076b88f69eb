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

// ReasonAllCounted: every GPU pod of the project is counted by its quotas.
const ReasonAllCounted = "AllCounted"

// maxListedPods is how many pods a condition names before it only counts.
const maxListedPods = 10

// UncountedPod is a GPU pod that the quotas do not count, or not in full: it was there
// before the namespace was adopted, or before its pool was counted in the
// currency that it has now.
type UncountedPod struct {
	// Pod is its name.
	Pod string
	// Pool is the project's pool whose GPUs it holds; empty where it is none of them.
	Pool string
	// Uncharged is what it holds there and is not charged; 0 where it has no pool.
	Uncharged workload.Milli
	// Preemptible tells that others may end it, so that it may go over the guarantee.
	Preemptible bool
}

// observeUncounted looks for them on the API server; false where all were found to be
// counted before, in the pools' present currencies: what came later was counted
// on its way in. A namespace that is not governed yet is always looked at, since
// more may come.
func (r *Reconciler) observeUncounted(ctx context.Context, project *v1alpha1.Project, pools []input.NodePool, governed bool) ([]UncountedPod, bool, error) {
	known := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionUncounted)
	if governed && known != nil && known.Status == metav1.ConditionFalse && known.Message == allCountedMessage(pools) {
		return nil, false, nil
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(project.NamespaceName())); err != nil {
		return nil, false, fmt.Errorf("listing the pods of namespace %s that no quota counts: %w", project.NamespaceName(), err)
	}
	var all v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, false, fmt.Errorf("listing node pools: %w", err)
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
			return nil, false, fmt.Errorf("reading node %s: %w", name, err)
		}
		nodes[name] = &node
	}
	strays := FindUncounted(pods.Items, pools, func(node string) []string { return inventory.PoolsForNode(nodes[node], all.Items) })
	// That there are none holds only once no more can come.
	return strays, governed || len(strays) > 0, nil
}

// FindUncounted are those of the pods that hold GPUs which no quota counts, sorted by
// name. The pools are the project's; poolsOf are the names of those that select
// a node.
func FindUncounted(pods []corev1.Pod, pools []input.NodePool, poolsOf func(node string) []string) []UncountedPod {
	var strays []UncountedPod
	for i := range pods {
		pod := &pods[i]
		if workload.IsPodTerminal(pod) {
			continue
		}
		request, err := workload.ParsePod(pod)
		if err == nil && !request.RequestsGPU() {
			continue
		}
		stray := UncountedPod{Pod: pod.Name, Preemptible: preemptibleClasses[pod.Spec.PriorityClassName]}
		if pool := poolForPod(pod, pools, poolsOf); pool != nil {
			charged := requestedQuota(pod, pool.QuotaResource)
			stray.Pool, stray.Uncharged = pool.Name, ComputeCharge(request, pool)-charged
			// Without boards nothing has its price, and what admission said holds.
			if stray.Uncharged <= 0 || charged > 0 && len(pool.Products) == 0 {
				continue
			}
		} else if requestsQuotaResource(pod) {
			continue // of a pool that the project no longer has
		}
		strays = append(strays, stray)
	}
	slices.SortFunc(strays, func(a, b UncountedPod) int { return cmp.Compare(a.Pod, b.Pod) })
	return strays
}

// preemptibleClasses are the priority classes under which a pod may be ended for others.
var preemptibleClasses = map[string]bool{
	v1alpha1.PriorityClassTrain: true, v1alpha1.PriorityClassInteractivePreemptible: true,
}

// poolForPod is the pool of the pod's node; of a pod that has none yet, the one that
// it selects, else the first, since it may come to any; nil where it is none of
// these.
func poolForPod(pod *corev1.Pod, pools []input.NodePool, poolsOf func(string) []string) *input.NodePool {
	is := func(fits func(*input.NodePool) bool) *input.NodePool {
		for i := range pools {
			if fits(&pools[i]) {
				return &pools[i]
			}
		}
		return nil
	}
	if pod.Spec.NodeName != "" {
		names := poolsOf(pod.Spec.NodeName)
		return is(func(p *input.NodePool) bool { return len(names) == 1 && names[0] == p.Name })
	}
	if name := pod.Labels[v1alpha1.LabelNodePool]; name != "" {
		return is(func(p *input.NodePool) bool { return p.Name == name })
	}
	return is(func(p *input.NodePool) bool { return selectorMayMatch(pod.Spec.NodeSelector, p.NodeSelector) })
}

// selectorMayMatch tells whether a pod that selects nodes so may come to those of a pool.
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
			if name == v1alpha1.ResourceGPUMilli || strings.HasPrefix(string(name), string(v1alpha1.ResourceGPUMilli)+".") {
				return true
			}
		}
	}
	return false
}

// sumUncountedByPool is what strays hold of each pool.
func sumUncountedByPool(strays []UncountedPod) map[string]workload.Milli {
	sums := map[string]workload.Milli{}
	for _, stray := range strays {
		if stray.Pool != "" {
			sums[stray.Pool] += stray.Uncharged
		}
	}
	return sums
}

// DeductUncounted are the pools as the quotas are to be rendered: with what strays hold
// taken off the limit, and what those hold that nobody may end off what is
// guaranteed too. Nothing falls below zero.
func DeductUncounted(pools []input.NodePool, strays []UncountedPod) []input.NodePool {
	less := slices.Clone(pools)
	for i := range less {
		pool := &less[i]
		for _, stray := range strays {
			if stray.Pool != pool.Name {
				continue
			}
			pool.Limit = max(0, pool.Limit-stray.Uncharged)
			if !stray.Preemptible {
				pool.Guaranteed = max(0, pool.Guaranteed-stray.Uncharged)
			}
		}
		pool.Guaranteed = min(pool.Guaranteed, pool.Limit)
	}
	return less
}

// exceededLimits is why a namespace with these strays cannot be governed yet: they hold
// more than the limit; nil where they do not.
func exceededLimits(pools []input.NodePool, strays []UncountedPod) *problem {
	sums := sumUncountedByPool(strays)
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
		"the namespace is governed once there is room for the GPU pods in it, %s: they %s; this goes on by itself as they end, or an administrator of the department may raise the limit",
		formatPodNames(strays), strings.Join(texts, "; "))}
}

// formatPodNames lists the strays, shortened.
func formatPodNames(strays []UncountedPod) string {
	names := make([]string, 0, maxListedPods)
	for _, stray := range strays[:min(maxListedPods, len(strays))] {
		names = append(names, stray.Pod)
	}
	list := strings.Join(names, ", ")
	if len(strays) > maxListedPods {
		list += fmt.Sprintf(" and %d more", len(strays)-maxListedPods)
	}
	return list
}

// allCountedMessage says that there are none, and in which currencies: in another one
// nobody has looked.
func allCountedMessage(pools []input.NodePool) string {
	currencies := make([]string, 0, len(pools))
	for i := range pools {
		currencies = append(currencies, string(pools[i].QuotaResource))
	}
	slices.Sort(currencies)
	if currencies = slices.Compact(currencies); len(currencies) == 0 {
		return "there are no node pools in which GPU pods would be counted"
	}
	return "every GPU pod is counted, in " + strings.Join(currencies, ", ")
}

func uncountedCondition(pools []input.NodePool, strays []UncountedPod) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionUncounted, Status: metav1.ConditionFalse, Reason: ReasonAllCounted,
		Message: allCountedMessage(pools),
	}
	if len(strays) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonPodsUncounted
	sums := sumUncountedByPool(strays)
	var off []string
	for i := range pools {
		if sum := sums[pools[i].Name]; sum > 0 {
			off = append(off, fmt.Sprintf("%s of node pool %s", sum.Describe(), pools[i].Name))
		}
	}
	c.Message = "GPU pods that were there before the quota, which does not count them: " + formatPodNames(strays)
	if len(off) > 0 {
		c.Message += "; until they are gone the project's limit is lower by what they hold, " + strings.Join(off, " and ")
	}
	c.Message += "; delete them, and what their controllers start in their place is counted"
	return c
}
