// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

var inKAI = []engine{kai}

// ofGPUGroup is the label by which KAI-Scheduler reserves a GPU for a pod.
const ofGPUGroup = "{metadata: {labels: {runai-gpu-group: dgx-1-0-a1b2c}}}"

const kaiShare = `{metadata: {annotations: {gpu-fraction: "0.5"}}}`

var kaiPod = own("Pod", kaiShare)

// KAI-Scheduler's objects and labels are its own.
var _ = attacks(
	inKAIQueue("another project's queue", createWith("Pod", kaiShare, "{metadata: {labels: {kai.scheduler/queue: thesis-mueller.dgx}}}"), "does not belong to project {project}"),
	inKAIQueue("no PodGroup", createWith("Pod", kaiShare, `{metadata: {annotations: {kai.scheduler/skip-podgrouper: "true"}}}`), "only KAI-Scheduler writes the annotation"),
	inKAIQueue("no PodGroup, after admission", patch(kaiPod, `{"metadata":{"annotations":{"kai.scheduler/skip-podgrouper":"true"}}}`), "only KAI-Scheduler sets"),
	inKAIQueue("no PodGroup, by the Job", createWith("Job", inTemplate("Job", kaiShare), `{metadata: {annotations: {kai.scheduler/skip-podgrouper: "true"}}}`), "only KAI-Scheduler decides"),
	inKAIQueue("a container's memory, after admission", patch(kaiPod, `{"metadata":{"annotations":{"nvidia.com/container.main.gpu-memory.request":"40Gi"}}}`), "create the pod again"),
	inKAIQueue("another workload's group", createWith("Pod", kaiShare, `{metadata: {annotations: {pod-group-name: pg-other}}}`), "only KAI-Scheduler writes the annotation"),
	inKAIQueue("another workload's group, after admission", patch(kaiPod, `{"metadata":{"annotations":{"pod-group-name":"pg-other"}}}`), "only KAI-Scheduler sets"),
	inKAIQueue("another preemptibility, after admission", patch(kaiPod, `{"metadata":{"labels":{"kai.scheduler/preemptibility":"non-preemptible"}}}`), "create the pod again"),
	inKAIQueue("another priority class, after admission, by its label", patch(kaiPod, `{"metadata":{"labels":{"priorityClassName":"inference"}}}`), "create the pod again"),
	inKAIQueue("another queue, after admission", patch(kaiPod, `{"metadata":{"labels":{"kai.scheduler/queue":"other"}}}`), "create the pod again"),
	inKAIQueue("a GPU fraction and a MIG device", createWith("Pod", kaiShare, limits("nvidia.com/mig-1g.5gb")), "keep one of the two"),
	inKAIQueue("a GPU of another pod, after admission", patch(kaiPod, `{"metadata":{"labels":{"runai-gpu-group":"dgx-1-0-a1b2c"}}}`), "only KAI-Scheduler assigns a pod to a GPU"),
	row{class: queues, name: "KAI: a reserved GPU, without a request", engines: everyEngine, attack: create("Pod", ofGPUGroup), want: "only KAI-Scheduler assigns a pod to a GPU"},
	row{
		class: queues, name: "KAI: several reserved GPUs, without a request", engines: everyEngine,
		attack: create("Pod", "{metadata: {labels: {runai-gpu-group/dgx-1-0-a1b2c: x, runai-gpu-group/dgx-1-1-a1b2c: x}}}"), want: "only KAI-Scheduler assigns a pod to a GPU",
	},
	row{
		class: queues, name: "KAI: a reserved GPU, without a request, in a template", engines: everyEngine,
		attack: createPods("Deployment", ofGPUGroup), want: "only KAI-Scheduler assigns a pod to a GPU",
	},
	row{
		class: queues, name: "KAI: a reserved GPU, outside projects", roles: []role{namespaceAdmin, clusterAdmin},
		attack: inNamespace("default", create("Pod", ofGPUGroup)), want: "only KAI-Scheduler assigns a pod to a GPU",
	},
	row{
		class: queues, name: "KAI: a BindRequest of the user's own", engines: inKAI, roles: []role{namespaceAdmin}, rbac: users,
		attack: apply("{apiVersion: scheduling.run.ai/v1alpha2, kind: BindRequest, metadata: {name: mine}, spec: {podName: over, selectedNode: dgx-7, receivedResourceType: Regular}}"),
		want:   "BindRequests are written by KAI-Scheduler alone", uncontrolled: "BindRequests are KAI's",
	},
	row{
		class: queues, name: "KAI: another workload's group, after admission, through the status", engines: inKAI, roles: []role{namespaceAdmin}, rbac: users,
		attack: patchStatus(kaiPod, `{"metadata":{"annotations":{"pod-group-name":"pg-other"}}}`), want: "only KAI-Scheduler sets",
	},
	row{
		class: queues, name: "KAI: a PodGroup of the user's own", engines: inKAI, roles: []role{namespaceAdmin}, rbac: users,
		attack: apply("{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: pg-mine}, spec: {minMember: 1, queue: '{project}.kai', priorityClassName: inference}}"),
		want:   "PodGroups are written by KAI-Scheduler alone", uncontrolled: "PodGroups are KAI's",
	},
	row{
		class: queues, name: "KAI: a larger limit of the queue", engines: inKAI, roles: []role{namespaceAdmin}, rbac: users,
		attack: patch(named("Queue", "{project}.kai"), `{"spec":{"resources":{"gpu":{"limit":-1}}}}`), want: "only Sluice writes and deletes",
	},
	row{
		class: queues, name: "KAI: the ConfigMap that lists a pod's GPUs", engines: inKAI, roles: []role{l2, l1, editor, namespaceAdmin},
		attack:  apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: train-abcdefg-shared-gpu-0}}"),
		control: create("ConfigMap", ""), want: "choose another name",
	},
	row{
		class: queues, name: "KAI: another scheduler", engines: inKAI, attack: createWith("Pod", kaiShare, "{spec: {schedulerName: other}}"),
		harmless: has("spec.schedulerName", "kai-scheduler"),
	},
	row{
		class: queues, name: "KAI: not preemptible", engines: inKAI,
		attack:   createWith("Pod", kaiShare, "{metadata: {labels: {kai.scheduler/preemptibility: non-preemptible}}}"),
		harmless: has("metadata.labels.kai\\.scheduler/preemptibility", "preemptible"),
	},
)

func inKAIQueue(name string, request attempt, want string) row {
	return row{class: queues, name: "KAI: " + name, engines: inKAI, attack: request, want: want}
}
