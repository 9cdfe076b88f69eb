// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

// aShare requests half a GPU of the pool with MIG devices.
const aShare = `{metadata: {labels: {sluice.dev/workload-type: train}, annotations: {gpu-fraction: "0.5", sluice.dev/node-pools: direct-mig}}}`

// bindingTo is a Binding to a node.
const bindingTo = "{apiVersion: v1, kind: Binding, target: {kind: Node, name: dgx-2}}"

// What passes by the scheduler.
var _ = attacks(
	row{
		class: bindings, name: "nodeName", engines: []engine{kube, kai},
		attack: create("Pod", "{spec: {nodeName: dgx-2}}"), want: "does not choose its node",
	},
	row{ // Kueue's gate comes first
		class: bindings, name: "nodeName of a gated pod", engines: inKueue,
		attack: create("Pod", "{spec: {nodeName: dgx-2}}"), want: "spec.nodeName: Forbidden",
	},
	row{
		class: bindings, name: "a Binding", engines: everyEngine, roles: []role{namespaceAdmin}, rbac: users,
		attack: post(own("Pod"), "binding", bindingTo), want: "only a scheduler may bind",
		uncontrolled: "a Binding has no part that could be left out",
	},
	row{
		class: bindings, name: "an eviction with a long grace period", roles: []role{namespaceAdmin}, rbac: users,
		attack:  post(own("Pod"), "eviction", "{apiVersion: policy/v1, kind: Eviction, deleteOptions: {gracePeriodSeconds: 864000}}"),
		control: post(own("Pod"), "eviction", "{apiVersion: policy/v1, kind: Eviction}"), want: "omit gracePeriodSeconds",
	},
	row{
		class: bindings, name: "a toleration of the taint for node changes", roles: writers,
		attack: patch(own("Pod"), `{"spec":{"tolerations":[{"key":"sluice.dev/repartitioning","operator":"Exists"}]}}`), want: "spec.tolerations",
	},
	row{
		class: bindings, name: "the status written", roles: []role{l2, l1, editor, serviceAccount, dean, owner, viewer},
		attack: patchStatus(named("Pod", "any"), `{"status":{"phase":"Failed"}}`), want: "cannot patch resource \"pods/status\"",
	},
)

// What reaches a GPU from a container that no quota counts.
var _ = attacks(
	debugContainer("with all GPUs", `"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]`, "set it to void"),
	debugContainer("with void and all", `"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"},{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]`, "set it to void"),
	debugContainer("with variables of a ConfigMap", `"envFrom":[{"configMapRef":{"name":"any"}}]`, "kubectl debug --env=NVIDIA_VISIBLE_DEVICES=void"),
	debugContainer("with MIG devices", `"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"},{"name":"NVIDIA_MIG_CONFIG_DEVICES","value":"all"}]`, "would reach a GPU"),
	debugContainer("privileged", void+`,"securityContext":{"privileged":true}`, "privileged"),
	debugContainer("with SYS_ADMIN", void+`,"securityContext":{"capabilities":{"add":["CAP_SYS_ADMIN"]}}`, "SYS_ADMIN"),
)

const void = `"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}]`

// debugContainer is a row with an ephemeral container.
func debugContainer(name, fields, want string) row {
	body := func(fields string) string {
		return `{"spec":{"ephemeralContainers":[{"name":"d","image":"any",` + fields + `}]}}`
	}
	return row{
		class: podContents, name: "a debug container " + name, roles: []role{namespaceAdmin}, rbac: users,
		attack: patchSubresource(own("Pod"), "ephemeralcontainers", body(fields), body(void)), want: want,
	}
}

// What admission decided about a pod stays.
var _ = attacks(
	managedMetadata("a changed workload type", "labels", `{"sluice.dev/workload-type":"inference"}`),
	managedMetadata("no workload type", "labels", `{"sluice.dev/workload-type":null}`),
	managedMetadata("another project", "labels", `{"sluice.dev/project":"thesis-mueller"}`),
	managedMetadata("another queue of Kueue", "labels", `{"kueue.x-k8s.io/queue-name":"other"}`),
	managedMetadata("another queue of KAI", "labels", `{"kai.scheduler/queue":"other"}`),
	managedMetadata("a larger GPU fraction", "annotations", `{"gpu-fraction":"1"}`),
	managedMetadata("another creator", "annotations", `{"sluice.dev/created-by":"other"}`),
	managedMetadata("a longer time limit", "annotations", `{"sluice.dev/max-runtime":"1000h"}`),
	managedMetadata("the time of its end", "annotations", `{"sluice.dev/ends-at":"2099-01-01T00:00:00Z"}`),
	row{
		class: labels, name: "a larger GPU fraction, through the status", roles: []role{namespaceAdmin}, rbac: users,
		attack: patchStatus(own("Pod", aShare), `{"metadata":{"annotations":{"gpu-fraction":"1"}}}`), want: "create the pod again",
	},
)

// managedMetadata is a row that changes labels or annotations of a pod after its admission.
func managedMetadata(name, field, change string) row {
	return row{
		class: labels, name: name + ", after admission", attack: patch(own("Pod", aShare), `{"metadata":{"`+field+`":`+change+`}}`),
		want: "create the pod again",
	}
}
