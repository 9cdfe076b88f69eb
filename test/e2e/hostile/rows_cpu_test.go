// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

const (
	// aGPUClass is a class of pods with GPUs, above that of pods without.
	aGPUClass = "{spec: {priorityClassName: sluice-interactive}}"
	// onRefusingNodes selects the nodes of a pool that refuses pods without GPUs.
	onRefusingNodes = "{spec: {tolerations: [{operator: Exists}], nodeSelector: {sluice.dev/node-pool: refusing}}}"
	// refusingTerms are node selector terms, of which the pod needs one.
	refusingTerms = `{spec: {tolerations: [{operator: Exists}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
		{matchExpressions: [{key: sluice.dev/node-pool, operator: In, values: [refusing]}]}, {matchExpressions: [{key: any, operator: DoesNotExist}]}]}}}}}`
)

// Pods without GPUs harm no pods with GPUs.
var _ = attacks(
	row{class: cpuPods, name: "no class", engines: everyEngine, attack: create("Pod", ""), harmless: onPod(ranksBelowGPUPods)},
	row{class: cpuPods, name: "a class of pods with GPUs", engines: everyEngine, attack: create("Pod", aGPUClass), want: "is not for a pod without GPUs, which has sluice-cpu"},
	row{class: cpuPods, name: "another class of the cluster", attack: create("Pod", "{spec: {priorityClassName: hostile-high}}"), harmless: onPod(ranksBelowGPUPods)},
	row{
		class: cpuPods, name: "the priority by its number", attack: create("Pod", "{spec: {priority: 1000000}}"),
		want: "priority",
	},
	row{
		class: cpuPods, name: "a preemption policy", attack: create("Pod", "{spec: {preemptionPolicy: PreemptLowerPriority}}"),
		harmless: onPod(ranksBelowGPUPods),
	},
	row{
		class: cpuPods, name: "a grace period of a year", attack: create("Pod", "{spec: {terminationGracePeriodSeconds: 31536000}}"),
		harmless: onPod(func(pod *corev1.Pod) error {
			if grace := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 0); grace > 3600 {
				return fmt.Errorf("its grace period is %d s", grace)
			}
			return nil
		}),
	},
	row{
		class: cpuPods, name: "nodes of a pool that refuses them, tolerating all", engines: everyEngine, attack: create("Pod", onRefusingNodes),
		want: "the nodes with the label sluice.dev/node-pool=refusing refuse pods without GPUs",
	},
	row{
		class: cpuPods, name: "nodes of a pool that refuses them, by one of several terms", engines: everyEngine, attack: create("Pod", refusingTerms),
		harmless: onPod(avoidsRefusingNodes),
	},
	row{class: cpuPods, name: "any node, tolerating all", attack: create("Pod", "{spec: {tolerations: [{operator: Exists}]}}"), harmless: onPod(avoidsRefusingNodes)},
	row{
		class: cpuPods, name: "more pods than the project may have", roles: users, fresh: true, attack: really(manyPods()),
		want: "exceeded quota: sluice, requested: pods=1, used: pods=2, limited: pods=2", uncontrolled: "the first pods are accepted",
	},
	row{
		class: cpuPods, name: "more objects of the project", roles: []role{manager, dean}, rbac: users, attack: patch(named("Project", "{project}"), `{"spec":{"objects":{"pods":100000}}}`),
		want: "spec.objects", uncontrolled: "a limit that is tightened would hold for all other rows",
	},
)

// ranksBelowGPUPods returns an error if the pod can preempt others, or is not below all pods with GPUs.
func ranksBelowGPUPods(pod *corev1.Pod) error {
	priority, preempts := ptr.Deref(pod.Spec.Priority, 0), ptr.Deref(pod.Spec.PreemptionPolicy, corev1.PreemptLowerPriority)
	if pod.Spec.PriorityClassName != v1alpha1.PriorityClassCPU || priority != v1alpha1.PriorityCPU || preempts != corev1.PreemptNever {
		return fmt.Errorf("it has the class %q with %d, and %s", pod.Spec.PriorityClassName, priority, preempts)
	}
	return nil
}

// avoidsRefusingNodes returns an error if the pod may run on the nodes of the pool that refuses it.
func avoidsRefusingNodes(pod *corev1.Pod) error {
	if a := pod.Spec.Affinity; a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return fmt.Errorf("it may run on all nodes")
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		avoids := false
		for _, r := range term.MatchExpressions {
			avoids = avoids || r.Key == v1alpha1.LabelNodePool && r.Operator == corev1.NodeSelectorOpNotIn && len(r.Values) == 1 && r.Values[0] == "refusing"
		}
		if !avoids {
			return fmt.Errorf("it may run on nodes with %+v", term)
		}
	}
	return nil
}

// manyPods creates pods that request nothing until one is refused. The project may have two.
func manyPods() attempt {
	return do("create pods that request nothing", func(a *attacker) (got *unstructured.Unstructured, err error) {
		project := &v1alpha1.Project{}
		project.Name = a.namespace
		limit := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"objects":{"pods":2}}}`))
		if err := a.world.Admin.Patch(a.t.Context(), project, limit); err != nil {
			return nil, err
		}
		a.eventually(func() error {
			var quota corev1.ResourceQuota
			err := a.world.Admin.Get(a.t.Context(), types.NamespacedName{Namespace: a.namespace, Name: v1alpha1.QuotaName}, &quota)
			if hard := quota.Status.Hard[corev1.ResourcePods]; err != nil || hard.Cmp(resource.MustParse("2")) != 0 {
				return fmt.Errorf("the quota of pods is %s, %w", hard.String(), err)
			}
			return nil
		})
		for i := range 4 {
			if got, err = a.ordinary("Pod", fmt.Sprint(a.intruder(), "-", i), `{spec: {nodeSelector: {nowhere: "yes"}}}`); err != nil {
				return nil, err
			}
			if err := a.create(got); err != nil {
				return nil, err
			}
		}
		return got, nil
	})
}
