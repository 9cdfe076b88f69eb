// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	forced     = "gracePeriodSeconds: 0: the quota of the pod would be free while its processes still hold the GPU"
	evictNow   = "{apiVersion: policy/v1, kind: Eviction, deleteOptions: {gracePeriodSeconds: 0}}"
	evict      = "{apiVersion: policy/v1, kind: Eviction, deleteOptions: {gracePeriodSeconds: 1}}"
	withoutEnd = `{spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, resources: {limits: {nvidia.com/gpu: "1"}}}]}}`
)

// Grace periods.
var (
	now           = client.GracePeriodSeconds(0)
	soon          = client.GracePeriodSeconds(1)
	anHourOfGrace = client.GracePeriodSeconds(3600)
)

// A pod gives its quota back when its processes have ended.
var _ = attacks(
	row{
		class: quotas, name: "a running GPU pod deleted without a grace period", engines: withNodes, roles: slices.Concat(writers, []role{colleague}),
		attack: remove(runningPod, now), control: remove(runningPod, soon), want: forced,
	},
	row{
		class: quotas, name: "running GPU pods deleted together without a grace period", engines: withNodes,
		roles: []role{l1, editor, serviceAccount, namespaceAdmin}, rbac: []role{l2}, attack: removeRunning(now), control: removeRunning(soon), want: forced,
	},
	row{
		class: quotas, name: "a running GPU pod evicted without a grace period", engines: withNodes, roles: []role{namespaceAdmin},
		attack: post(runningPod, "eviction", evictNow), control: post(runningPod, "eviction", evict), want: "deleteOptions." + forced,
	},
	row{
		class: quotas, name: "a GPU pod that ends at once", engines: withNodes, attack: create("Pod", withoutEnd),
		harmless: onPod(func(pod *corev1.Pod) error {
			if grace := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 0); grace < 1 {
				return fmt.Errorf("its grace period is %d s", grace)
			}
			return nil
		}),
	},
	row{
		class: quotas, name: "a GPU pod of a lost node, by an administrator and the garbage collector", allowed: true, engines: withNodes,
		roles: []role{dean, "system:serviceaccount:kube-system:pod-garbage-collector"}, attack: remove(runningPod, now),
	},
	row{class: quotas, name: "a GPU pod that waits for a node, without a grace period", allowed: true, attack: remove(own("Pod", limits("nvidia.com/gpu")), now)},
)

// The projects of a department have no more than it has.
var _ = attacks(row{
	class: tenancy, name: "a project whose limit is more than what others leave of the department's", roles: []role{"stranger@hostile.example"},
	attack: create("Project", ofOtherDepartment("61")), control: create("Project", ofOtherDepartment("60")),
	want: "department hostile-other is limited to 100 GPUs in node pool direct, where each project is counted alone, and has promised 40 to other projects",
})

func ofOtherDepartment(limit string) string {
	return `{spec: {department: "{otherDepartment}", nodePools: [{name: direct, gpu: {guaranteed: "0", limit: "` + limit + `"}}]}}`
}

var withNodes = []engine{kube, kueue}

// runningPod is a pod with a GPU on a node: the attacker's, or a colleague's if the attacker may not create pods.
// runningCPUPod is one without.
var runningPod, runningCPUPod = onNode(limits("nvidia.com/gpu")), onNode("")

func onNode(fragment string) target {
	return target{text: "a running pod", find: func(a *attacker) (*unstructured.Unstructured, error) { return a.runningPod(fragment) }}
}

// runningPod returns a pod on a node. It exists once for each test.
func (a *attacker) runningPod(fragment string) (*unstructured.Unstructured, error) {
	author := a
	if !slices.Contains(writers, a.role) {
		author = a.as(colleague)
	}
	pod, err := author.ordinary("Pod", a.intruder(), fragment)
	if err != nil {
		return nil, err
	}
	sender := *author
	sender.dry = false
	// Several quotas change at a time: the API server answers with a conflict after three attempts of its own. The control created the pod.
	err = retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error { return sender.create(pod) })
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("%w: %w", errFixture, err)
	}
	a.eventually(func() error {
		if err := a.world.Admin.Get(a.t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName"); node == "" {
			return fmt.Errorf("pod %s is not bound yet", pod.GetName())
		}
		return nil
	})
	return pod, nil
}

// removeRunning deletes the attacker's running pods in one request.
func removeRunning(grace client.GracePeriodSeconds) attempt {
	return do(fmt.Sprintf("delete all running pods %v", grace), func(a *attacker) (*unstructured.Unstructured, error) {
		pod, err := runningPod.find(a)
		if err != nil {
			return nil, err
		}
		return pod, a.client.DeleteAllOf(a.t.Context(), newObject("Pod"), client.InNamespace(a.namespace),
			client.MatchingLabels{"app": pod.GetName()}, grace, client.DryRunAll)
	})
}
