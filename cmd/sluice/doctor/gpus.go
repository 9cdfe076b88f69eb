// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/policies/input"
)

func isAgent(d appsv1.DaemonSet) bool { return d.Name == agentName }

// nodeProblems are the conditions of GPUNodes that are problems while they have the status.
var nodeProblems = []struct {
	kind   string
	status metav1.ConditionStatus
	result Result
	do     string
}{
	{v1alpha1.ConditionGPULost, metav1.ConditionTrue, Error, "drain the node and restart it; replace the GPU if it is lost again"},
	{v1alpha1.ConditionResetRequired, metav1.ConditionTrue, Warning, "drain the node and reset its GPUs (nvidia-smi --gpu-reset), or allow resets: NodePool.spec.mig.resets"},
	{v1alpha1.ConditionNoPermission, metav1.ConditionTrue, Error, "give the agent's pod the privileges of the manifests"},
	{v1alpha1.ConditionLayoutApplied, metav1.ConditionFalse, Warning, "kubectl describe gpunode of this node"},
	{v1alpha1.ConditionDevicesShared, metav1.ConditionTrue, Warning, "remove time slicing and MPS of MIG devices from the device plugin's configuration of this node"},
}

// checkGPUs presents what the agents report about GPUs, and pods that use more than they have.
func checkGPUs(o *Observation) (out outcome) {
	if reason := firstUnread(o.GPUNodes); reason != "" {
		return skip("%s", reason)
	}
	if len(o.GPUNodes.Value) == 0 {
		return skip("no GPU agent reports")
	}
	gpus := 0
	for i := range o.GPUNodes.Value {
		node := &o.GPUNodes.Value[i]
		object := "GPUNode " + node.Name
		gpus += len(node.Status.GPUs)
		for _, problem := range nodeProblems {
			condition := meta.FindStatusCondition(node.Status.Conditions, problem.kind)
			if condition == nil || condition.Status != problem.status || condition.Reason == v1alpha1.ReasonProgressing {
				continue
			}
			out.add(problem.result, object, fmt.Sprintf("%s (%s): %s", problem.kind, condition.Reason, condition.Message), problem.do)
		}
		for j := range node.Status.GPUs {
			if gpu := &node.Status.GPUs[j]; gpu.Health == v1alpha1.GPUUnhealthy {
				out.add(Error, object, fmt.Sprintf("GPU %d (%s) is unhealthy: %s", gpu.Index, gpu.UUID, gpu.Message), "see the driver's log on the node (dmesg), and reset or replace the GPU")
			}
		}
		for _, finding := range node.Status.Findings {
			out.add(Warning, object, fmt.Sprintf("pod %s: %s since %s", podOf(node, string(finding.PodUID)), finding.Reason,
				finding.Since.UTC().Format("2006-01-02 15:04 MST")), "sluice top; lifecycle warns of it, and evicts for memory (docs/platform/gpus.md)")
		}
	}
	out.ok = fmt.Sprintf("%d GPUs are healthy, and no pod uses more than its share", gpus)
	return out
}

// podOf returns namespace and name of a pod on a node.
func podOf(node *v1alpha1.GPUNode, uid string) string {
	for i := range node.Status.Pods {
		if p := &node.Status.Pods[i]; string(p.UID) == uid {
			return p.Namespace + "/" + p.Name
		}
	}
	return uid
}

// gpuRequest returns by what a pod requests a GPU, with the terms of the admission policy sluice-gpu-pods: "resources of
// a container" or "an annotation"; empty if it requests none.
func gpuRequest(pod *corev1.Pod, parameters *v1alpha1.AdmissionParametersSpec) string {
	isGPU := func(list corev1.ResourceList) bool {
		for name := range list {
			class, isClass := strings.CutPrefix(string(name), "deviceclass.resource.kubernetes.io/")
			if slices.Contains(parameters.GPUResources, string(name)) || strings.HasPrefix(string(name), v1alpha1.ResourceNVIDIAMIGPrefix) ||
				strings.HasPrefix(string(name), string(v1alpha1.ResourceGPUMilli)) ||
				strings.HasPrefix(string(name), string(v1alpha1.ResourceGuaranteedMilli)) || isClass && slices.Contains(parameters.DeviceClasses, class) {
				return true
			}
		}
		return false
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if isGPU(c.Resources.Limits) || isGPU(c.Resources.Requests) {
			return "resources of a container"
		}
	}
	if r := pod.Spec.Resources; r != nil && (isGPU(r.Limits) || isGPU(r.Requests)) {
		return "resources of the pod"
	}
	for _, key := range []string{v1alpha1.AnnotationGPU, v1alpha1.AnnotationGPUFraction, v1alpha1.AnnotationGPUMemory} {
		if _, ok := pod.Annotations[key]; ok {
			return "an annotation"
		}
	}
	return ""
}

// parameters returns those of the cluster, or the defaults if there are none.
func (o *Observation) parameters() v1alpha1.AdmissionParametersSpec {
	if o.Parameters.Value != nil {
		return o.Parameters.Value.Spec
	}
	return admissionpolicy.NewParameters(v1alpha1.AdmissionParametersSpec{}).Spec
}

// unlistedResources returns what nodes of a pool offer and no list knows, with the first of these pools, and the units of the
// others.
func (o *Observation) unlistedResources() (map[string]string, workload.ResourceUnits) {
	units := workload.NewListedResources(o.NodePools.Value, o.parameters().NonGPUResources).Units()
	return input.UnlistedResources(o.NodePools.Value, units), units
}

// checkUnlistedResources finds resources of the pools' nodes that can be GPUs, and the pods of projects that have them.
func checkUnlistedResources(o *Observation) (out outcome) {
	if reason := firstUnread(o.NodePools, o.GPUPods, o.Namespaces); reason != "" {
		return skip("%s", reason)
	}
	unlisted, units := o.unlistedResources()
	for _, name := range sortedKeys(unlisted) {
		out.add(Warning, "NodePool "+unlisted[name], fmt.Sprintf("its nodes offer %s, or offered it in the last 24 hours, and no list knows "+
			"whether it is a GPU; pods of projects that request it are rejected", name),
			"name it in spec.resources of the NodePool if it is a GPU, else in nonGPUResources of the AdmissionParameters")
	}
	for i := range o.UnlistedPods {
		pod := &o.UnlistedPods[i]
		name := units.Requested(pod, sortedKeys(unlisted))
		out.add(Error, "Pod "+pod.Namespace+"/"+pod.Name, fmt.Sprintf("it requests %s, which nodes of node pool %s began to offer later: "+
			"it can have a GPU that no quota counts", name, unlisted[name]), "delete the pod, or list the resource")
	}
	out.ok = "Sluice, a NodePool or the AdmissionParameters know every extended resource of the pools' nodes"
	return out
}

// maxListedPods limits the pods that a finding names.
const maxListedPods = 3

// checkOutside lists the GPU pods outside projects, whose successors gpuPodsOutside: Deny refuses.
func checkOutside(o *Observation) (out outcome) {
	if reason := firstUnread(o.GPUPods, o.Namespaces); reason != "" {
		return skip("%s", reason)
	}
	parameters := o.parameters()
	exempt := append(tenancy.ExemptNamespaces(), parameters.ExemptNamespaces...)
	exempt = append(exempt, agentNamespace)
	byNamespace := map[string][]string{}
	for i := range o.GPUPods.Value {
		pod := &o.GPUPods.Value[i]
		if !slices.Contains(exempt, pod.Namespace) && o.namespaceLabels(pod.Namespace)[v1alpha1.LabelProject] == "" {
			byNamespace[pod.Namespace] = append(byNamespace[pod.Namespace], pod.Name)
		}
	}
	consequence := "gpuPodsOutside: Deny would refuse such pods"
	if o.deniesOutside() {
		consequence = "the API server refuses such pods (gpuPodsOutside: Deny), so that none of these is replaced when it ends"
	}
	for _, namespace := range sortedKeys(byNamespace) {
		pods := byNamespace[namespace]
		slices.Sort(pods)
		names := strings.Join(pods[:min(len(pods), maxListedPods)], ", ")
		if more := len(pods) - maxListedPods; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		out.add(Warning, "Namespace "+namespace, fmt.Sprintf("GPU pods outside of a project: %d (%s); %s", len(pods), names, consequence),
			fmt.Sprintf("sluice adopt --namespace %s --department DEPARTMENT --owner NAME=EMAIL, or add the namespace to exemptNamespaces "+
				"of lifecycle's configuration", namespace))
	}
	out.ok = fmt.Sprintf("all of %d GPU pods run in projects or exempt namespaces", len(o.GPUPods.Value))
	return out
}
