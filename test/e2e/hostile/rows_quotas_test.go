// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import "sluice.dev/api/v1alpha1"

// The quotas that lifecycle renders belong to Sluice.
var _ = attacks(
	quotaWrite("a larger quota", patch(directQuota, `{"spec":{"hard":{"requests.sluice.dev/gpu-milli.direct":"999k"}}}`)),
	quotaWrite("a quota with its usage reset", patchStatus(directQuota, `{"status":{"used":{"requests.sluice.dev/gpu-milli.direct":"0"}}}`)),
	quotaWrite("a quota without its manager label", patch(directQuota, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`)),
	quotaWrite("a quota with a finalizer", patch(directQuota, `{"metadata":{"finalizers":["example.org/stay"]}}`)),
	quotaWrite("a quota deleted", remove(directQuota)),
	quotaWrite("all quotas deleted", removeAll("ResourceQuota")),
	quotaWrite("a quota created before an adoption", inNamespace("default", apply(
		`{apiVersion: v1, kind: ResourceQuota, metadata: {name: sluice, labels: {app.kubernetes.io/managed-by: sluice}}, spec: {scopes: [Terminating]}}`))),
)

var directQuota = named("ResourceQuota", v1alpha1.QuotaName)

func quotaWrite(name string, request attempt) row {
	return row{
		class: quotas, name: name, roles: []role{namespaceAdmin}, rbac: []role{l2, l1, editor, serviceAccount, engineer, manager, viewer, owner, dean, outsider},
		attack: request, want: "neither written nor deleted by others", uncontrolled: "the quota is Sluice's",
	}
}

// Quotas cannot count the GPUs of resource claims.
const (
	uncounted  = "would not be counted for the project"
	noProject  = "request a project from your department"
	gpuClaim   = "{spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}}"
	migClaim   = "{spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: nic.example.org}}, {name: r, exactly: {deviceClassName: mig.nvidia.com}}]}}}"
	vfioClaim  = "{spec: {devices: {requests: [{name: r, firstAvailable: [{name: a, deviceClassName: nic.example.org}, {name: b, deviceClassName: vfio.gpu.nvidia.com}]}]}}}"
	orClaim    = "{spec: {devices: {requests: [{name: r, firstAvailable: [{name: a, deviceClassName: gpu.nvidia.com}, {name: b, deviceClassName: mig.nvidia.com}]}]}}}"
	nicClaim   = "{spec: {devices: {requests: [{name: r, firstAvailable: [{name: a, deviceClassName: nic.example.org}]}]}}}"
	imexClaim  = "{spec: {devices: {requests: [{name: r, exactly: {deviceClassName: compute-domain-default-channel.nvidia.com}}]}}}"
	byClassPod = `{spec: {containers: [{name: main, resources: {limits: {deviceclass.resource.kubernetes.io/gpu.nvidia.com: "1"}}}]}}`
)

// inSpec returns the claim as a template.
func inSpec(claim string) string { return "{spec: " + claim + "}" }

var _ = attacks(
	row{class: deviceClaims, name: "a claim", roles: claimants, attack: create("ResourceClaim", gpuClaim), want: "DeviceClass gpu.nvidia.com: its GPUs " + uncounted},
	row{class: deviceClaims, name: "a claim of a MIG device", roles: claimants, attack: create("ResourceClaim", migClaim), want: "DeviceClass mig.nvidia.com: "},
	row{class: deviceClaims, name: "a claim with alternatives", roles: claimants, attack: create("ResourceClaim", vfioClaim), want: uncounted},
	row{class: deviceClaims, name: "a template of claims", roles: claimants, attack: create("ResourceClaimTemplate", inSpec(gpuClaim)), want: uncounted},
	row{class: deviceClaims, name: "the class as a resource", attack: create("Pod", byClassPod), want: "does not count the devices of DeviceClass gpu.nvidia.com"},
	row{
		class: deviceClaims, name: "a claim that a controller creates from an older template", roles: []role{claimController},
		attack: create("ResourceClaim", gpuClaim), want: "would not be counted",
	},
	row{
		class: deviceClaims, name: "outside projects, a claim", roles: []role{clusterAdmin}, attack: inNamespace("default", create("ResourceClaim", gpuClaim)),
		want: "(DeviceClass gpu.nvidia.com), and namespace default is not a project's; " + noProject,
	},
	row{
		class: deviceClaims, name: "outside projects, alternatives", roles: []role{clusterAdmin}, attack: inNamespace("default", create("ResourceClaim", orClaim)),
		want: "(DeviceClass gpu.nvidia.com, mig.nvidia.com)",
	},
	row{
		class: deviceClaims, name: "outside projects, a template", roles: []role{clusterAdmin},
		attack: inNamespace("default", create("ResourceClaimTemplate", inSpec(migClaim))), want: noProject,
	},
	row{class: deviceClaims, name: "a claim of the scheduler for counted pods", allowed: true, roles: []role{kubeScheduler}, attack: create("ResourceClaim", gpuClaim)},
	row{class: deviceClaims, name: "a claim of another device", allowed: true, roles: claimants, attack: create("ResourceClaim", "")},
	row{class: deviceClaims, name: "a template of another device", allowed: true, roles: claimants, attack: create("ResourceClaimTemplate", inSpec(nicClaim))},
	row{class: deviceClaims, name: "a channel between nodes", allowed: true, roles: claimants, attack: create("ResourceClaim", imexClaim)},
	row{class: deviceClaims, name: "outside projects, another device", allowed: true, roles: []role{clusterAdmin}, attack: inNamespace("default", create("ResourceClaim", ""))},
	row{class: deviceClaims, name: "a claim in an exempt namespace", allowed: true, roles: []role{clusterAdmin}, attack: inNamespace("kube-system", create("ResourceClaim", gpuClaim))},
	row{
		class: deviceClaims, name: "a template in an exempt namespace", allowed: true, roles: []role{clusterAdmin},
		attack: inNamespace("kube-system", create("ResourceClaimTemplate", inSpec(gpuClaim))),
	},
)

// GPU pods outside projects are refused where the action is Deny.
var _ = attacks(
	outside("a whole GPU", limits("nvidia.com/gpu"), noProject),
	outside("a MIG device", limits("nvidia.com/mig-1g.5gb"), noProject),
	outside("the GPU quota unit", limits("sluice.dev/gpu-milli.direct"), noProject),
	outside("the unit of the guarantee", limits("sluice.dev/guaranteed-milli.direct"), noProject),
	outside("a Volcano vGPU", limits("volcano.sh/vgpu-number"), noProject),
	outside("a DeviceClass", limits("deviceclass.resource.kubernetes.io/gpu.nvidia.com"), noProject),
	outside("a GPU of an init container", `{spec: {initContainers: [{name: init, image: any, resources: {limits: {nvidia.com/gpu: "1"}}}]}}`, noProject),
	outside("a GPU fraction", `{metadata: {annotations: {gpu-fraction: "0.5"}}}`, noProject),
	outside("the GPU annotation", `{metadata: {annotations: {sluice.dev/gpu: "0.5"}}}`, noProject),
	outside("a PriorityClass of projects", `{spec: {priorityClassName: sluice-train}}`, "sluice-train"),
	outside("a DeviceClass without GPUs", limits("deviceclass.resource.kubernetes.io/nic.example.org"), ""),
	row{class: quotas, name: "a GPU in an exempt namespace", allowed: true, roles: []role{clusterAdmin}, attack: inNamespace("kube-system", create("Pod", limits("nvidia.com/gpu")))},
)

// limits is a fragment of a pod that requests one of a resource.
func limits(resource string) string {
	return `{spec: {containers: [{name: main, resources: {limits: {` + resource + `: "1"}}}]}}`
}

// outside is a row with a pod in a namespace that is no project's.
func outside(name, fragment, want string) row {
	return row{
		class: quotas, name: "outside projects, " + name, allowed: want == "", roles: []role{clusterAdmin},
		attack: inNamespace("default", create("Pod", fragment)), want: want,
	}
}
