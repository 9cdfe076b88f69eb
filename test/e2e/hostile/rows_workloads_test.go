// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

// suspendedJob is a suspended Job that requests a GPU, like a Job that a scheduler queues.
var suspendedJob = own("Job", `{metadata: {labels: {kueue.x-k8s.io/queue-name: any}}, spec: {suspend: true, template: {
 metadata: {labels: {sluice.dev/workload-type: train}, annotations: {sluice.dev/max-runtime: 6h, sluice.dev/node-pools: direct-mig}},
 spec: {containers: [{name: main, resources: {limits: {nvidia.com/mig-1g.5gb: "1", sluice.dev/gpu-milli.direct-mig: "1000", cpu: "1"}}}]}}}}`)

const countsGPUs, createAgain = "the GPUs that a workload requests", "create it again"

// inMain returns a patch of the resources of a Job's container.
func inMain(resources string) string {
	return `{"spec":{"template":{"spec":{"containers":[{"name":"main","resources":` + resources + `}]}}}}`
}

// The fields of a queued workload that admission evaluated do not change, although Kubernetes lets
// users edit the template of a suspended Job.
var _ = attacks(
	suspended(quotas, "more GPUs", inMain(`{"limits":{"nvidia.com/mig-1g.5gb":"8"},"requests":{"nvidia.com/mig-1g.5gb":"8"}}`), countsGPUs),
	suspended(quotas, "another MIG profile", inMain(`{"limits":{"nvidia.com/mig-3g.40gb":"1"},"requests":{"nvidia.com/mig-3g.40gb":"1"}}`), countsGPUs),
	suspended(quotas, "no GPU quota units",
		inMain(`{"limits":{"sluice.dev/gpu-milli.direct-mig":null},"requests":{"sluice.dev/gpu-milli.direct-mig":null}}`), countsGPUs),
	suspended(quotas, "a larger GPU fraction", `{"spec":{"template":{"metadata":{"annotations":{"gpu-fraction":"0.9"}}}}}`, "spec.template.metadata.annotations"),
	suspended(policyTime, "a longer time limit", `{"spec":{"template":{"metadata":{"annotations":{"sluice.dev/max-runtime":"48h"}}}}}`, createAgain),
	suspended(policyTime, "no time limit", `{"spec":{"template":{"metadata":{"annotations":{"sluice.dev/max-runtime":null}}}}}`, createAgain),
	suspended(policyTime, "marked as stopped", `{"metadata":{"annotations":{"sluice.dev/stopped-until":"2026-01-01T00:00:00Z"}}}`, "written by Sluice alone"),
	suspended(labels, "another workload type", `{"spec":{"template":{"metadata":{"labels":{"sluice.dev/workload-type":"inference"}}}}}`, "spec.template.metadata.labels"),
	suspended(labels, "another queue for the pods", `{"spec":{"template":{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}}}`, createAgain),
	suspended(labels, "another queue", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`, "metadata.labels"),
	suspended(labels, "no queue, and started", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}},"spec":{"suspend":false}}`, "metadata.labels"),
	suspended(labels, "another project", `{"metadata":{"labels":{"sluice.dev/project":"thesis-mueller"}}}`, "metadata.labels"),
	suspended(identity, "another creator", `{"metadata":{"annotations":{"sluice.dev/created-by":"other@example.org"}}}`, "does not change afterwards"),
	suspended(identity, "no creator", `{"metadata":{"annotations":{"sluice.dev/created-by":null}}}`, "does not change afterwards"),
	suspended(quotas, "more CPU", inMain(`{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}`), ""),
	suspended(queues, "its start", `{"spec":{"suspend":false}}`, ""),
	suspended(quotas, "the same GPUs", inMain(`{"limits":{"nvidia.com/mig-1g.5gb":1,"sluice.dev/gpu-milli.direct-mig":"1k"}}`), ""),
	suspended(quotas, "a node selector", `{"spec":{"template":{"spec":{"nodeSelector":{"zone":"a"}}}}}`, ""),
	suspended(labels, "a user's labels and annotations",
		`{"metadata":{"labels":{"mine":"yes"}},"spec":{"template":{"metadata":{"labels":{"mine":"yes"},"annotations":{"mine":"yes"}}}}}`, ""),
	row{
		class: labels, name: "a suspended Job with another queue, through the status", roles: []role{namespaceAdmin}, rbac: users,
		attack: patchStatus(suspendedJob, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`), want: "metadata.labels",
	},
	row{
		class: identity, name: "a suspended Job with another creator, through the status", roles: []role{namespaceAdmin}, rbac: users,
		attack: patchStatus(suspendedJob, `{"metadata":{"annotations":{"sluice.dev/created-by":"other@example.org"}}}`), want: "does not change afterwards",
	},
)

func suspended(of class, name, body, want string) row {
	return row{class: of, name: "a suspended Job with " + name, attack: patch(suspendedJob, body), want: want, allowed: want == ""}
}

// Only Kueue starts queued work, and owns its objects. queuedJob requests more than the queue has,
// so that Kueue does not start it.
var (
	queuedJob = own("Job", `{spec: {suspend: true, parallelism: 60, completions: 60, template: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: "1"}}}]}}}}`)
	inKueue   = []engine{kueue}
)

var _ = attacks(
	row{
		class: queues, name: "a queued Job started", engines: inKueue, attack: patch(queuedJob, `{"spec":{"suspend":false}}`),
		want: "Kueue starts a queued workload",
	},
	row{
		class: queues, name: "a Job in another queue", engines: inKueue, attack: create("Job", "{metadata: {labels: {kueue.x-k8s.io/queue-name: other}}}"),
		want: "queue other is not the project's queue",
	},
	row{
		class: queues, name: "a queue of the user's own", engines: inKueue, roles: []role{namespaceAdmin}, rbac: users,
		attack: apply("{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: mine}, spec: {clusterQueue: team-a}}"),
		want:   "Sluice renders the one queue", uncontrolled: "queues are Sluice's",
	},
	row{
		class: queues, name: "the project's queue held", engines: inKueue, roles: []role{namespaceAdmin}, rbac: users,
		attack: patch(named("LocalQueue", "default"), `{"spec":{"stopPolicy":"Hold"}}`), want: "Sluice renders",
	},
	row{
		class: queues, name: "a Workload of the user's own", engines: inKueue, roles: []role{namespaceAdmin}, rbac: users,
		attack: apply("{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: mine}, spec: {queueName: default, podSets: [{name: main, count: 1," +
			" template: {spec: {restartPolicy: Never, containers: [{name: main, image: any}]}}}]}}"),
		want: "Kueue creates them for Jobs and pods", uncontrolled: "Workloads are Kueue's",
	},
)
