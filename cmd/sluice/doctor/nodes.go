// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/quota/capacity"
	"sluice.dev/lifecycle/tenancy/nodepool"
)

// poolFixes says what to do by the reason of a NodePool's condition.
var poolFixes = map[string]string{
	v1alpha1.ReasonNoNodes:                      "label the nodes of the pool (kubectl label node NODE KEY=VALUE), or correct spec.nodeSelector",
	v1alpha1.ReasonNodeSelectorConflict:         "change spec.nodeSelector of one pool, or the labels of the nodes, so that one pool selects each node",
	v1alpha1.ReasonGPUCountUnknown:              "install GPU feature discovery on the nodes, or Sluice's GPU agent",
	nodepool.ReasonNoGPUs:                       "install the device plugin on the nodes, or take them out of the pool",
	v1alpha1.ReasonRequirementsMissing:          "install or configure what the message names; the pool accepts no pods until then",
	v1alpha1.ReasonRecommendationsMissing:       "configure what the message names; the pool accepts pods meanwhile",
	v1alpha1.ReasonSchedulerMissing:             "choose a supported spec.scheduler, or apply the policy schedulers.<name>",
	v1alpha1.ReasonFieldsWithoutEffect:          "remove the fields that the message names, since they have no effect",
	v1alpha1.ReasonTrainingGuaranteeUnsupported: "guarantee the quota to interactive work and inference only, or choose Kueue or KAI for the pool",
}

// checkNodePools presents what lifecycle found about each pool: nodes, the scheduler's requirements and MIG planning.
func checkNodePools(o *Observation) (out outcome) {
	if reason := firstUnread(o.NodePools); reason != "" {
		return skip("%s", reason)
	}
	if len(o.NodePools.Value) == 0 {
		out.add(Warning, "", "there is no NodePool, so that no project can have GPUs", "create a NodePool for each kind of GPU nodes (docs/platform/schedulers.md)")
	}
	for i := range o.NodePools.Value {
		pool := &o.NodePools.Value[i]
		object := "NodePool " + pool.Name
		if pool.Status.ObservedGeneration != pool.Generation || len(pool.Status.Conditions) == 0 {
			out.add(Warning, object, "lifecycle has not observed its current spec", "see the check lifecycle; if it was just changed, try again")
			continue
		}
		for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionRequirementsMet, v1alpha1.ConditionUnsupported, v1alpha1.ConditionPlanned} {
			condition := meta.FindStatusCondition(pool.Status.Conditions, kind)
			if condition == nil || condition.Status == healthyStatus(kind) {
				continue
			}
			do := poolFixes[condition.Reason]
			if do == "" {
				do = "kubectl describe slpool " + pool.Name
			}
			out.add(poolSeverity(condition), object, fmt.Sprintf("%s (%s): %s", kind, condition.Reason, condition.Message), do)
		}
	}
	out.ok = fmt.Sprintf("%d node pools are ready, and their schedulers have what they need", len(o.NodePools.Value))
	return out
}

// healthyStatus returns the status of a NodePool's condition that is no problem.
func healthyStatus(kind string) metav1.ConditionStatus {
	if kind == v1alpha1.ConditionUnsupported {
		return metav1.ConditionFalse
	}
	return metav1.ConditionTrue
}

// poolSeverity is Error for what keeps the pool from accepting or running pods.
func poolSeverity(c *metav1.Condition) Result {
	switch c.Reason {
	case v1alpha1.ReasonNoNodes, v1alpha1.ReasonNodeSelectorConflict, v1alpha1.ReasonRequirementsMissing, v1alpha1.ReasonSchedulerMissing,
		nodepool.ReasonNoGPUs:
		return Error
	}
	return Warning
}

// checkGPUsKnown checks that the number of GPUs of each node with GPUs is known.
func checkGPUsKnown(o *Observation) (out outcome) {
	if reason := firstUnread(o.Nodes); reason != "" {
		return skip("%s", reason)
	}
	known, gpus := 0, int32(0)
	for i := range o.Nodes.Value {
		node := &o.Nodes.Value[i]
		summary, err := inventory.SummarizeNode(node, o.gpuNode(node.Name), o.NodePools.Value...)
		switch {
		case err != nil && !o.mayHaveGPUs(node): // such as a node of the control plane
		case err != nil:
			out.add(Warning, "Node "+node.Name, err.Error(), "install GPU feature discovery (part of NVIDIA's GPU operator), or Sluice's GPU agent")
		case summary.GPUs == 0 && hasGPUResource(node):
			out.add(Warning, "Node "+node.Name, "it offers GPUs, and no label and no agent reports how many",
				"install GPU feature discovery (part of NVIDIA's GPU operator), or Sluice's GPU agent")
		case summary.GPUs > 0:
			known++
			gpus += summary.GPUs
		}
		for _, warning := range summary.Warnings {
			out.add(Warning, "Node "+node.Name, warning, "correct the labels of the node")
		}
	}
	if known == 0 && len(out.findings) == 0 {
		out.add(Warning, "", "no node has a GPU that is known", "install NVIDIA's GPU operator, or its device plugin and GPU feature discovery")
	}
	out.ok = fmt.Sprintf("%d GPUs on %d nodes", gpus, known)
	return out
}

// mayHaveGPUs reports whether anything says that the node has GPUs: a resource, a label, a node pool or an agent.
func (o *Observation) mayHaveGPUs(node *corev1.Node) bool {
	return hasGPUResource(node) || node.Labels[v1alpha1.LabelGPUProduct] != "" || node.Labels["nvidia.com/gpu.present"] == "true" ||
		o.gpuNode(node.Name) != nil || len(inventory.PoolsForNode(node, o.NodePools.Value)) > 0
}

// hasGPUResource reports whether a device plugin offers GPUs or MIG devices of the node.
func hasGPUResource(node *corev1.Node) bool {
	for name, quantity := range node.Status.Capacity {
		if !quantity.IsZero() && (name == v1alpha1.ResourceNVIDIAGPU || name == v1alpha1.ResourceNVIDIAGPUShared ||
			strings.HasPrefix(string(name), v1alpha1.ResourceNVIDIAMIGPrefix)) {
			return true
		}
	}
	return false
}

func (o *Observation) gpuNode(name string) *v1alpha1.GPUNode {
	for i := range o.GPUNodes.Value {
		if o.GPUNodes.Value[i].Name == name {
			return &o.GPUNodes.Value[i]
		}
	}
	return nil
}

// checkNodeCapacity checks that one pool selects each node with GPUs, and that the node has its GPU quota unit.
func checkNodeCapacity(o *Observation) (out outcome) {
	if reason := firstUnread(o.Nodes, o.NodePools, o.GPUNodes); reason != "" {
		return skip("%s", reason)
	}
	counted := 0
	for i := range o.Nodes.Value {
		node := &o.Nodes.Value[i]
		object := "Node " + node.Name
		pools := inventory.PoolsForNode(node, o.NodePools.Value)
		switch {
		case len(pools) > 1:
			out.add(Error, object, "several node pools select it, so that it belongs to none: "+strings.Join(pools, ", "),
				poolFixes[v1alpha1.ReasonNodeSelectorConflict])
			continue
		case len(pools) == 0 && hasGPUResource(node):
			out.add(Warning, object, "it has GPUs, and no node pool selects it", "label it for a pool, or create a NodePool; outside of pools no project can use it")
			continue
		case len(pools) == 0:
			continue
		}
		want, err := capacity.Desired(node, o.gpuNode(node.Name), o.NodePools.Value)
		if err != nil || len(want) == 0 {
			continue // the checks gpus-known and node-pools report it
		}
		counted++
		for name := range want {
			have := node.Status.Allocatable[name]
			if quantity := want[name]; have.Cmp(quantity) != 0 {
				out.add(Error, object, fmt.Sprintf("its allocatable %s is %s, and must be %s: no pod of a project fits on it, or too many do",
					name, have.String(), quantity.String()), "see the check lifecycle, which writes it, and the kubelet of the node, which may have removed it")
			}
		}
	}
	out.ok = fmt.Sprintf("%d nodes of pools have their GPU quota unit", counted)
	return out
}

// checkAgents checks that an agent reports for each node with GPUs, and reports lately.
func checkAgents(o *Observation) (out outcome) {
	if reason := firstUnread(o.Nodes, o.NodePools, o.GPUNodes); reason != "" {
		return skip("%s", reason)
	}
	if len(o.GPUNodes.Value) == 0 && !slices.ContainsFunc(o.DaemonSets.Value, isAgent) {
		return skip("no GPU agent is installed: MIG on demand, use and idle time are not available")
	}
	const seeAgent = "kubectl -n " + agentNamespace + " get pods -o wide, and the logs of the agent on this node"
	reporting := 0
	for i := range o.Nodes.Value {
		node := &o.Nodes.Value[i]
		observed := o.gpuNode(node.Name)
		if len(inventory.PoolsForNode(node, o.NodePools.Value)) == 0 || observed == nil && !hasGPUResource(node) && node.Labels[v1alpha1.LabelGPUCount] == "" {
			continue
		}
		ready := meta.FindStatusCondition(nodeConditions(observed), v1alpha1.ConditionReady)
		switch {
		case observed == nil || observed.Status.SampledAt == nil && len(observed.Status.Conditions) == 0:
			out.add(Warning, "Node "+node.Name, "it has GPUs and no agent reports it", seeAgent)
		case observed.Status.SampledAt != nil && o.Now.Sub(observed.Status.SampledAt.Time) > inventory.SampleMaxAge:
			out.add(Error, "GPUNode "+node.Name, fmt.Sprintf("its agent has not reported for %s",
				o.Now.Sub(observed.Status.SampledAt.Time).Round(time.Second)), seeAgent)
		case ready != nil && ready.Status != metav1.ConditionTrue:
			out.add(Error, "GPUNode "+node.Name, fmt.Sprintf("not ready (%s): %s", ready.Reason, ready.Message), seeAgent)
		default:
			reporting++
		}
	}
	for i := range o.DaemonSets.Value {
		if d := &o.DaemonSets.Value[i]; isAgent(*d) && d.Status.NumberUnavailable > 0 {
			out.add(Warning, "DaemonSet "+d.Namespace+"/"+d.Name, fmt.Sprintf("%d of %d pods are not available",
				d.Status.NumberUnavailable, d.Status.DesiredNumberScheduled), fmt.Sprintf("kubectl -n %s describe ds/%s", d.Namespace, d.Name))
		}
	}
	out.ok = fmt.Sprintf("agents that report: %d", reporting)
	return out
}

func nodeConditions(observed *v1alpha1.GPUNode) []metav1.Condition {
	if observed == nil {
		return nil
	}
	return observed.Status.Conditions
}
