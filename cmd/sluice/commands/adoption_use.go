// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/tenancy/project"
	"sluice.dev/policies/input"
)

// poolUse is the present use of one node pool by a namespace.
type poolUse struct {
	pool             string
	running, pending workload.Milli
	// requests counts the pods by what they request: "nvidia.com/gpu: 2".
	runningPods, pendingPods map[string]int
	// guaranteed and limit are the proposed quota.
	guaranteed, limit workload.Milli
}

// addUse computes the quotas of the project from the GPU pods that have not ended.
func (a *adoption) addUse(state *adoptionState, pods []corev1.Pod) {
	pools, units := state.projectPools(), workload.NewListedResources(state.pools, nil).Units()
	uses := map[string]*poolUse{}
	var outside, invalid []string
	for i := range pods {
		pod := &pods[i]
		if workload.IsPodTerminal(pod) {
			continue
		}
		a.pods++
		request, err := units.ParsePod(pod)
		switch {
		case err != nil:
			invalid = append(invalid, pod.Name)
			continue
		case !request.RequestsGPU():
			continue
		}
		pool := state.poolOf(pod, pools)
		if pool == nil {
			outside = append(outside, pod.Name)
			continue
		}
		use := uses[pool.Name]
		if use == nil {
			use = &poolUse{pool: pool.Name, runningPods: map[string]int{}, pendingPods: map[string]int{}}
			uses[pool.Name] = use
		}
		if charge, what := project.ComputeCharge(request, pool), describeRequest(request); pod.Spec.NodeName != "" {
			use.running += charge
			use.runningPods[what]++
		} else {
			use.pending += charge
			use.pendingPods[what]++
		}
	}
	for i := range pools {
		use := uses[pools[i].Name]
		if use == nil {
			continue
		}
		use.guaranteed, use.limit = roundQuota(use.running, &pools[i]), roundQuota(use.running+use.pending, &pools[i])
		a.uses = append(a.uses, *use)
		a.project.Spec.NodePools = append(a.project.Spec.NodePools, v1alpha1.PoolQuota{
			Name: use.pool, GPU: v1alpha1.GPUQuota{Guaranteed: toQuantity(use.guaranteed), Limit: toQuantity(use.limit)},
		})
	}
	if len(outside) > 0 {
		a.warnings = append(a.warnings, fmt.Sprintf("%s: on a node, or for nodes, that no single node pool selects; they are in no quota: "+
			"label the nodes for a pool, and run the command again", listPods(outside)))
	}
	if len(invalid) > 0 {
		a.warnings = append(a.warnings, listPods(invalid)+": their GPU request cannot be parsed; they are in no quota, and admission "+
			"would refuse their successors")
	}
	if len(a.uses) == 0 {
		a.warnings = append(a.warnings, "no pod requests a GPU in a node pool now, so that spec.nodePools is empty: add the node pools by hand")
	}
}

// poolOf returns the pool of a pod's node, or the first pool that a pending pod may run in; nil for none.
func (s *adoptionState) poolOf(pod *corev1.Pod, pools []input.NodePool) *input.NodePool {
	find := func(matches func(*input.NodePool) bool) *input.NodePool {
		for i := range pools {
			if matches(&pools[i]) {
				return &pools[i]
			}
		}
		return nil
	}
	if node := s.nodes[pod.Spec.NodeName]; node != nil {
		names := inventory.PoolsForNode(node, s.pools)
		return find(func(p *input.NodePool) bool { return len(names) == 1 && names[0] == p.Name })
	}
	if pod.Spec.NodeName != "" {
		return nil // the node is gone
	}
	return find(func(p *input.NodePool) bool {
		for key, value := range p.NodeSelector {
			if wanted, ok := pod.Spec.NodeSelector[key]; ok && wanted != value {
				return false
			}
		}
		return true
	})
}

// Quota is proposed in whole GPUs, and in node pools that share GPUs in eighths.
const (
	wholeGPU  workload.Milli = 1000
	eighthGPU workload.Milli = 125
)

// roundQuota rounds a use up to a quota that people write.
func roundQuota(use workload.Milli, pool *input.NodePool) workload.Milli {
	step := wholeGPU
	if pool.Sharing != "" && pool.Sharing != v1alpha1.SharingNone {
		step = eighthGPU
	}
	return (use + step - 1) / step * step
}

func toQuantity(amount workload.Milli) resource.Quantity {
	return *resource.NewMilliQuantity(int64(amount), resource.DecimalSI)
}

// describeRequest describes what a pod requests.
func describeRequest(r workload.Request) string {
	devices := max(1, r.Devices)
	switch r.Form {
	case workload.FormMIG:
		return fmt.Sprintf("%d x %s", devices, r.MIGProfile)
	case workload.FormShare:
		return fmt.Sprintf("%d x %s of a GPU", devices, r.Share)
	case workload.FormMemory:
		return fmt.Sprintf("%d x %d MiB of a GPU", devices, r.MemoryMiB)
	case workload.FormReplica:
		return fmt.Sprintf("%d x a replica of a GPU", devices)
	}
	return r.GPUs.Describe()
}

// describePods describes pods by their requests: "2 pods with 1 GPU, 1 pod with 1 x 3g.20gb".
func describePods(byRequest map[string]int) string {
	var texts []string
	for _, request := range sortedByCount(byRequest) {
		texts = append(texts, fmt.Sprintf("%s with %s", countOf(byRequest[request], "pod"), request))
	}
	return strings.Join(texts, ", ")
}

func sortedByCount(counts map[string]int) []string {
	var keys []string
	for key := range counts {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	return keys
}

// maxListedPods is the number of pods that a warning names.
const maxListedPods = 5

// listPods lists pods by name: "pods a, b and 3 more".
func listPods(names []string) string {
	slices.Sort(names)
	text := "pods " + strings.Join(names[:min(len(names), maxListedPods)], ", ")
	if more := len(names) - maxListedPods; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// addResources proposes CPU and memory where the department limits them, since each of its projects needs a limit then.
func (a *adoption) addResources(department *v1alpha1.Department, pods []corev1.Pod) {
	cpu, memory := resource.Quantity{}, resource.Quantity{}
	for i := range pods {
		if workload.IsPodTerminal(&pods[i]) {
			continue
		}
		for j := range pods[i].Spec.Containers {
			requests := pods[i].Spec.Containers[j].Resources.Requests
			cpu.Add(requests[corev1.ResourceCPU])
			memory.Add(requests[corev1.ResourceMemory])
		}
	}
	if department.Spec.Resources.CPU != nil {
		a.project.Spec.Resources.CPU = resource.NewQuantity(max(1, cpu.Value()), resource.DecimalSI)
	}
	if department.Spec.Resources.Memory != nil {
		const gibibyte = 1 << 30
		a.project.Spec.Resources.Memory = resource.NewQuantity(max(1, (memory.Value()+gibibyte-1)/gibibyte)*gibibyte, resource.BinarySI)
	}
}
