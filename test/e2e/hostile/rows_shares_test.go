// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

// The nodes have 8 GPUs, 256 CPUs and 1 TiB of memory; the pool of KAI has none, and counts 12 CPUs and 80Gi for each GPU.
const (
	aGPU    = `{spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: "1"}}}]}}`
	aServer = `{metadata: {labels: {sluice.dev/workload-type: inference}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: "1"}}}]}}`
	aSlice  = `{metadata: {annotations: {sluice.dev/node-pools: direct-mig}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-1g.5gb: "1"}}}]}}`

	anInitContainer = `{spec: {initContainers: [{name: prepare, image: any, resources: {requests: {cpu: "255"}}}]}}`
	aSidecar        = `{spec: {initContainers: [{name: log, image: any, restartPolicy: Always, resources: {requests: {cpu: "60"}}}]}}`
	ofThePod        = `{spec: {resources: {requests: {cpu: "255"}}}}`
	limitOfThePod   = `{spec: {resources: {limits: {cpu: "255"}}}}`
	hugePages       = `{spec: {containers: [{name: main, resources: {requests: {cpu: "1"}, limits: {hugepages-2Mi: 2Mi}}}]}}`
)

// requests is a fragment of a pod that requests an amount of a resource, and limit one that only limits it.
func requests(resource, amount string) string {
	return `{spec: {containers: [{name: main, resources: {requests: {` + resource + `: "` + amount + `"}}}]}}`
}

func limit(resource, amount string) string {
	return `{spec: {containers: [{name: main, resources: {limits: {` + resource + `: "` + amount + `"}}}]}}`
}

// beyondShare is a row with a pod of one GPU, or of what with requests.
func beyondShare(name, with, fragment, want string) row {
	return row{class: nodeShares, name: name, attack: createWith("Pod", with, fragment), want: want}
}

func onEveryEngine(r row) row {
	r.engines = everyEngine
	return r
}

// A pod with a part of a node's GPUs leaves the CPU and the memory of the others.
var _ = attacks(
	onEveryEngine(beyondShare("all CPUs of a node", aGPU, requests("cpu", "255"), "the pod requests cpu 255; a pod with 1 GPU can request at most ")),
	beyondShare("all CPUs of a node, with a slice", aSlice, requests("cpu", "255"), "a pod with 0.125 of a GPU can request at most 6 in node pool direct-mig"),
	beyondShare("all memory of a node, with a slice", aSlice, requests("memory", "1000Gi"), "the pod requests memory 1000Gi; a pod with 0.125 of a GPU"),
	beyondShare("all disk of a node", aGPU, requests("ephemeral-storage", "1700Gi"), "can request at most 330Gi in node pool direct"),
	beyondShare("huge pages", aGPU, hugePages, "the pod requests hugepages-2Mi, which no node of node pool direct offers"),
	beyondShare("a limit alone", aGPU, limit("cpu", "255"), "the pod requests cpu 255; a pod with 1 GPU can request at most 48 in node pool direct"),
	beyondShare("in an init container", aGPU, anInitContainer, "the pod requests cpu 255"),
	beyondShare("in a sidecar", aGPU, aSidecar, "can request at most 48 in node pool direct"),
	beyondShare("for the whole pod", aGPU, ofThePod, "the pod requests cpu 255"),
	beyondShare("as the limit of the whole pod", aGPU, limitOfThePod, "the pod requests cpu 255"),
	beyondShare("more CPUs than there are numbers", aGPU, requests("cpu", "9e18"), "a pod with 1 GPU can request at most 48"),
	row{
		class: nodeShares, name: "half as much again, of a pod that cannot be preempted", attack: createWith("Pod", aServer, requests("cpu", "48")),
		control: create("Pod", requests("cpu", "48")), want: "can request at most 32 in node pool direct",
	},
	row{
		class: nodeShares, name: "in a Job", engines: everyEngine,
		attack: createWith("Job", inTemplate("Job", aGPU), inTemplate("Job", requests("cpu", "255"))), want: "the pod requests cpu 255; a pod with 1 GPU",
	},
	row{
		class: nodeShares, name: "a pod resized", roles: []role{namespaceAdmin}, rbac: users,
		attack: patchSubresource(own("Pod", aGPU), "resize", `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"255"}}}]}}`, ""),
		want:   "a pod with GPUs keeps the CPU and the memory", uncontrolled: "a resize has no part that could be left out",
	},
	allowedShare("the share of a GPU", aGPU, requests("cpu", "32")),
	allowedShare("half as much again, of a pod that can be preempted", aGPU, requests("cpu", "48")),
	allowedShare("the share of a slice", aSlice, requests("memory", "15Gi")),
)

func allowedShare(name, with, fragment string) row {
	return row{class: nodeShares, name: name, allowed: true, roles: users, attack: createWith("Pod", with, fragment)}
}

const (
	anHour       = "{spec: {terminationGracePeriodSeconds: 3600}}"
	tolerating   = "{spec: {terminationGracePeriodSeconds: 3600, tolerations: [{operator: Exists}]}}"
	keptOffPools = `{spec: {terminationGracePeriodSeconds: 3600, tolerations: [{operator: Exists}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:
		{nodeSelectorTerms: [{matchExpressions: [{key: sluice.dev/node-pool, operator: DoesNotExist}]}]}}}}}`
)

// hasGrace returns a check of a pod's grace period.
func hasGrace(seconds int64) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		if grace := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 0); grace != seconds {
			return fmt.Errorf("its grace period is %d s, want %d", grace, seconds)
		}
		return nil
	}
}

// A pod without GPUs yields its place on a node with GPUs within a minute, and a project has a limit of CPUs. The nodes of the tests
// have no taints.
var _ = attacks(
	row{class: cpuPods, name: "a grace period of an hour on nodes with GPUs", engines: everyEngine, attack: create("Pod", tolerating), harmless: onPod(hasGrace(60))},
	row{class: cpuPods, name: "a grace period of an hour on other nodes", attack: create("Pod", keptOffPools), harmless: onPod(hasGrace(3600))},
	row{class: cpuPods, name: "a grace period of an hour on nodes without taints", attack: create("Pod", anHour), harmless: onPod(hasGrace(60))},
	row{
		class: cpuPods, name: "deleted with a grace period of an hour", roles: slices.Concat(users, []role{namespaceAdmin}),
		attack: remove(runningCPUPod, anHourOfGrace), control: remove(runningCPUPod, soon),
		want: "gracePeriodSeconds: 3600: a pod of a project without GPUs is deleted with at most a minute of grace",
	},
	row{
		class: cpuPods, name: "most CPUs of a node that a pod with GPUs of another project needs", engines: withNodes, roles: []role{l1},
		fresh: true, alone: true, attack: really(do("run a pod with 200 CPUs", func(a *attacker) (*unstructured.Unstructured, error) {
			return a.runningPod(`{spec: {nodeSelector: {sluice.dev/node-pool: "{pool}"}, containers: [{name: main, resources: {requests: {cpu: "200"}}}]}}`)
		})), harmless: (*attacker).yieldsCPUs,
	},
	row{
		class: cpuPods, name: "more CPUs than the share of the limit and an allowance", roles: users,
		attack: createWith("Pod", requests("cpu", "64"), requests("cpu", "100k")), want: "exceeded quota: sluice, requested: requests.cpu=100k",
	},
)

// yieldsCPUs returns an error unless a pod with GPUs of another project, whose CPUs are on the node of the attacker's pod, runs
// there.
func (a *attacker) yieldsCPUs(pod *unstructured.Unstructured) error {
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	other := a.world.attacker(a.t, l1, a.engine, projectOf(a.engine))
	_, err := other.runningPod(`{spec: {nodeSelector: {kubernetes.io/hostname: "` + node + `"}, containers: [{name: main, resources: {
		requests: {cpu: "80"}, limits: {nvidia.com/gpu: "2"}}}]}}`)
	return err
}
