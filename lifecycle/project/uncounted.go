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
	"sluice.dev/policies/facts"
)

// ReasonAllCounted: every GPU pod of the project is counted by its quotas.
const ReasonAllCounted = "AllCounted"

// maxNamed is how many pods a condition names before it only counts.
const maxNamed = 10

// Stray is a GPU pod that the quotas do not count, or not in full: it was there
// before the namespace was adopted, or before its pool was counted in the
// currency that it has now.
type Stray struct {
	// Pod is its name.
	Pod string
	// Pool is the project's pool whose GPUs it holds; empty where it is none of them.
	Pool string
	// Share is what it holds there and is not charged; 0 where it has no pool.
	Share workload.Milli
	// Preemptible tells that others may end it, so that it may go over the guarantee.
	Preemptible bool
}

// strays looks for them on the API server; false where all were found to be
// counted before, in the pools' present currencies: what came later was counted
// on its way in. A namespace that is not governed yet is always looked at, since
// more may come.
func (r *Reconciler) strays(ctx context.Context, project *v1alpha1.Project, pools []facts.Pool, governed bool) ([]Stray, bool, error) {
	known := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionUncounted)
	if governed && known != nil && known.Status == metav1.ConditionFalse && known.Message == allCounted(pools) {
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
	strays := Strays(pods.Items, pools, func(node string) []string { return inventory.PoolsOf(nodes[node], all.Items) })
	// That there are none holds only once no more can come.
	return strays, governed || len(strays) > 0, nil
}

// Strays are those of the pods that hold GPUs which no quota counts, sorted by
// name. The pools are the project's; poolsOf are the names of those that select
// a node.
func Strays(pods []corev1.Pod, pools []facts.Pool, poolsOf func(node string) []string) []Stray {
	var strays []Stray
	for i := range pods {
		pod := &pods[i]
		if workload.Ended(pod) {
			continue
		}
		request, err := workload.ParsePod(pod)
		if err == nil && !request.AsksForGPU() {
			continue
		}
		stray := Stray{Pod: pod.Name, Preemptible: preemptible[pod.Spec.PriorityClassName]}
		if pool := poolOf(pod, pools, poolsOf); pool != nil {
			charged := counted(pod, pool.Currency)
			stray.Pool, stray.Share = pool.Name, Charge(request, pool)-charged
			// Without boards nothing has its price, and what admission said holds.
			if stray.Share <= 0 || charged > 0 && len(pool.Boards) == 0 {
				continue
			}
		} else if inAnyCurrency(pod) {
			continue // of a pool that the project no longer has
		}
		strays = append(strays, stray)
	}
	slices.SortFunc(strays, func(a, b Stray) int { return cmp.Compare(a.Pod, b.Pod) })
	return strays
}

// preemptible are the priority classes under which a pod may be ended for others.
var preemptible = map[string]bool{
	v1alpha1.PriorityClassTrain: true, v1alpha1.PriorityClassInteractivePreemptible: true,
}

// poolOf is the pool of the pod's node; of a pod that has none yet, the one that
// it selects, else the first, since it may come to any; nil where it is none of
// these.
func poolOf(pod *corev1.Pod, pools []facts.Pool, poolsOf func(string) []string) *facts.Pool {
	is := func(fits func(*facts.Pool) bool) *facts.Pool {
		for i := range pools {
			if fits(&pools[i]) {
				return &pools[i]
			}
		}
		return nil
	}
	if pod.Spec.NodeName != "" {
		names := poolsOf(pod.Spec.NodeName)
		return is(func(p *facts.Pool) bool { return len(names) == 1 && names[0] == p.Name })
	}
	if name := pod.Labels[v1alpha1.LabelNodePool]; name != "" {
		return is(func(p *facts.Pool) bool { return p.Name == name })
	}
	return is(func(p *facts.Pool) bool { return reaches(pod.Spec.NodeSelector, p.NodeSelector) })
}

// reaches tells whether a pod that selects nodes so may come to those of a pool.
func reaches(selector, labels map[string]string) bool {
	for key, value := range labels {
		if wanted, ok := selector[key]; ok && wanted != value {
			return false
		}
	}
	return true
}

func inAnyCurrency(pod *corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		for name := range pod.Spec.Containers[i].Resources.Requests {
			if name == v1alpha1.ResourceGPUMilli || strings.HasPrefix(string(name), string(v1alpha1.ResourceGPUMilli)+".") {
				return true
			}
		}
	}
	return false
}
