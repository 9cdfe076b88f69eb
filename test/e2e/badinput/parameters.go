// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import "fmt"

func projectParametersTable() table {
	return table{
		kind: "ProjectParameters",
		rejected: append([]edit{
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"another name", `{metadata: {name: other}}`, "", "must be named sluice, unless it has only images"},
			{"time limits in an object of another name", `{metadata: {name: other}, spec: {services: null, timeLimits: {train: {}}}}`, "", "must be named sluice"},
			{"images that are a text", `{spec: {images: a}}`, "spec.images", "must be of type array"},
			{"an empty image", `{spec: {images: [""]}}`, "spec.images[0]", "at least 1 chars"},
			{"an image that is too long", fmt.Sprintf(`{spec: {images: [%s]}}`, longText(513)), "spec.images[0]", "may not be more than 512"},
			{"too many images", fmt.Sprintf(`{spec: {images: [%s]}}`, repeatItems(65, "image-%d")), "spec.images", "must have at most 64 items"},
			{"time limits that are a list", `{spec: {timeLimits: [train]}}`, "spec.timeLimits", "must be of type object"},
			{"a negative runtime", `{spec: {timeLimits: {train: {maxRuntimeSeconds: -1}}}}`, "spec.timeLimits.train.maxRuntimeSeconds", "should be greater than or equal to 0"},
			{"a negative idle time", `{spec: {timeLimits: {train: {idleTimeoutSeconds: -1}}}}`, "spec.timeLimits.train.idleTimeoutSeconds", "should be greater than or equal to 0"},
		}, rejectedServices...),
		mutable: []edit{
			{name: "images", patch: `{spec: {images: [registry.example.org, "nvcr.io/nvidia"]}}`},
			{name: "all hosts", patch: `{spec: {services: {ingressHosts: ["*"]}}}`},
			{name: "all types", patch: `{spec: {services: {types: [ClusterIP, NodePort, LoadBalancer, ExternalName]}}}`},
		},
	}
}

// rejectedServices are those of a Department, too.
var rejectedServices = []edit{
	{"services that are a list", `{spec: {services: [ClusterIP]}}`, "spec.services", "must be of type object"},
	{"an unknown type of Services", `{spec: {services: {types: [Headless]}}}`, "spec.services.types[0]", "Unsupported value"},
	{"no type of Services", `{spec: {services: {types: []}}}`, "spec.services.types", "at least 1 items"},
	{"types that are a text", `{spec: {services: {types: ClusterIP}}}`, "spec.services.types", "must be of type array"},
	{"hosts that are a text", `{spec: {services: {ingressHosts: a.example.org}}}`, "spec.services.ingressHosts", "must be of type array"},
	{"a host with a scheme", `{spec: {services: {ingressHosts: ["https://a.example.org"]}}}`, "spec.services.ingressHosts[0]", "should match"},
	{"an asterisk inside a host", `{spec: {services: {ingressHosts: ["a*.example.org"]}}}`, "spec.services.ingressHosts[0]", "should match"},
}

func admissionParametersTable() table {
	k := table{
		kind: "AdmissionParameters",
		rejected: []edit{
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {users: [a]}}`, "spec.users", "unknown field"},
			{"another name", `{metadata: {name: other}}`, "", "must be named sluice"},
		},
		mutable: []edit{
			{name: "a binder", patch: `{spec: {binders: ["system:kube-scheduler", "system:serviceaccount:volcano-system:*"]}}`},
			{name: "more labels", patch: `{spec: {maxLabels: 1024, maxAnnotations: 512}}`},
			{name: "no list", patch: `{spec: {binders: null, managers: null}}`},
		},
	}
	for _, list := range []string{"binders", "controllers", "queues", "managers"} {
		entry := "spec." + list + "[0]"
		k.rejected = append(k.rejected,
			edit{list + ": an empty name", fmt.Sprintf(`{spec: {%s: [""]}}`, list), entry, "at least 1 chars"},
			edit{list + ": every user", fmt.Sprintf(`{spec: {%s: ["*"]}}`, list), entry, "should match"},
			edit{list + ": an asterisk inside", fmt.Sprintf(`{spec: {%s: ["system:*:binder"]}}`, list), entry, "should match"},
			edit{list + ": a line break", fmt.Sprintf(`{spec: {%s: ["a\nb"]}}`, list), entry, "should match"},
			edit{list + ": a name that is too long", fmt.Sprintf(`{spec: {%s: [%s]}}`, list, longText(513)), entry, "may not be more than 512"},
			edit{list + ": a name twice", fmt.Sprintf(`{spec: {%s: [a, a]}}`, list), "spec." + list + "[1]", "Duplicate value"},
			edit{list + ": too many", fmt.Sprintf(`{spec: {%s: [%s]}}`, list, repeatItems(257, "user-%d")), "spec." + list, "must have at most 256 items"},
		)
	}
	for list, longest := range map[string]int{"deviceClasses": 253, "gpuResources": 317, "deviceAnnotations": 253, "exemptNamespaces": 63} {
		entry := "spec." + list + "[0]"
		k.rejected = append(k.rejected,
			edit{list + ": an empty name", fmt.Sprintf(`{spec: {%s: [""]}}`, list), entry, "at least 1 chars"},
			edit{list + ": a name that is too long", fmt.Sprintf(`{spec: {%s: [%s]}}`, list, longText(longest+1)), entry, fmt.Sprintf("may not be more than %d", longest)},
			edit{list + ": a name twice", fmt.Sprintf(`{spec: {%s: [a, a]}}`, list), "spec." + list + "[1]", "Duplicate value"},
		)
	}
	k.rejected = append(k.rejected,
		edit{"deviceAnnotations: a pattern", `{spec: {deviceAnnotations: ["cdi.*"]}}`, "spec.deviceAnnotations[0]", "should match"},
		edit{"nonGPUResources: no domain", `{spec: {nonGPUResources: [fuse]}}`, "spec.nonGPUResources[0]", "should match"},
		edit{"nonGPUResources: every resource", `{spec: {nonGPUResources: ["*"]}}`, "spec.nonGPUResources[0]", "should match"},
		edit{"nonGPUResources: every domain", `{spec: {nonGPUResources: ["*/fuse"]}}`, "spec.nonGPUResources[0]", "should match"},
		edit{"nonGPUResources: an asterisk inside", `{spec: {nonGPUResources: ["a/b*c"]}}`, "spec.nonGPUResources[0]", "should match"},
		edit{"nonGPUResources: all of NVIDIA's", `{spec: {nonGPUResources: ["nvidia.com/*"]}}`, "spec.nonGPUResources[0]", "more specific"},
		edit{
			"nonGPUResources: a name that is too long", fmt.Sprintf(`{spec: {nonGPUResources: [a/%s]}}`, longText(316)),
			"spec.nonGPUResources[0]", "may not be more than 317",
		},
		edit{"nonGPUResources: a name twice", `{spec: {nonGPUResources: [a/b, a/b]}}`, "spec.nonGPUResources[1]", "Duplicate value"},
		edit{"reservedNamespaces: all namespaces", `{spec: {reservedNamespaces: ["*"]}}`, "spec.reservedNamespaces[0]", "should match"},
		edit{"reservedNamespaces: an asterisk inside", `{spec: {reservedNamespaces: ["a-*-b"]}}`, "spec.reservedNamespaces[0]", "should match"},
		edit{"reservedNamespaces: a name that is too long", fmt.Sprintf(`{spec: {reservedNamespaces: [%s]}}`, longText(64)), "spec.reservedNamespaces[0]", "may not be more than 63"},
		edit{"reservedNamespaces: a name twice", `{spec: {reservedNamespaces: [a, a]}}`, "spec.reservedNamespaces[1]", "Duplicate value"},
		edit{"deviceAnnotations: a whole key", `{spec: {deviceAnnotations: ["cdi.k8s.io/x"]}}`, "spec.deviceAnnotations[0]", "should match"},
	)
	kinds := func(kind, users string) string {
		return fmt.Sprintf(`{spec: {kindControllers: [{kind: %s, users: %s}]}}`, kind, users)
	}
	k.rejected = append(k.rejected,
		edit{"kindControllers: a plural", kinds("jobs.batch", "[a]"), "spec.kindControllers[0].kind", "should match"},
		edit{"kindControllers: a version", kinds("batch/v1", "[a]"), "spec.kindControllers[0].kind", "should match"},
		edit{"kindControllers: a kind that is too long", kinds("K"+longText(317), "[a]"), "spec.kindControllers[0].kind", "may not be more than 317"},
		edit{"kindControllers: no users", kinds("Job.batch", "[]"), "spec.kindControllers[0].users", "at least 1 items"},
		edit{"kindControllers: every user", kinds("Job.batch", `["*"]`), "spec.kindControllers[0].users[0]", "should match"},
		edit{"kindControllers: a kind twice", `{spec: {kindControllers: [{kind: Job.batch, users: [a]}, {kind: Job.batch, users: [b]}]}}`, "spec.kindControllers[1]", "Duplicate value"},
	)
	templates := func(entry string) string { return fmt.Sprintf(`{spec: {podTemplates: [%s]}}`, entry) }
	data := func(entry string) string { return fmt.Sprintf(`{spec: {policyData: [%s]}}`, entry) }
	k.rejected = append(k.rejected,
		edit{
			"podTemplates: a kind twice", templates("{kind: Foo.example.org, resource: foos, paths: [spec.a]}, {kind: Foo.example.org, resource: foos, paths: [spec.b]}"),
			"spec.podTemplates[1]", "Duplicate value",
		},
		edit{"podTemplates: a version instead of a group", templates("{kind: foo/v1, resource: foos, paths: [spec.a]}"), "spec.podTemplates[0].kind", "should match"},
		edit{"podTemplates: an upper-case resource", templates("{kind: Foo.example.org, resource: Foos, paths: [spec.a]}"), "spec.podTemplates[0].resource", "should match"},
		edit{"podTemplates: an upper-case version", templates("{kind: Foo.example.org, resource: foos, version: V1, paths: [spec.a]}"), "spec.podTemplates[0].version", "should match"},
		edit{"podTemplates: no paths", templates("{kind: Foo.example.org, resource: foos, paths: []}"), "spec.podTemplates[0].paths", "at least 1 items"},
		edit{"policyData: a kind twice", data("{apiVersion: v1, kind: Node, scope: Cluster}, {apiVersion: v1, kind: Node, scope: Cluster}"), "spec.policyData[1]", "Duplicate value"},
		edit{"policyData: a version without v", data("{apiVersion: apps/1, kind: Deployment}"), "spec.policyData[0].apiVersion", "should match"},
		edit{"policyData: a plural", data("{apiVersion: v1, kind: nodes}"), "spec.policyData[0].kind", "should match"},
		edit{"policyData: another scope", data("{apiVersion: v1, kind: Node, scope: Everywhere}"), "spec.policyData[0].scope", "supported values"},
		edit{"policyData: a path with an index", data(`{apiVersion: v1, kind: Node, fields: ["spec.taints[0]"]}`), "spec.policyData[0].fields[0]", "should match"},
	)
	for _, limit := range []string{"maxLabels", "maxAnnotations"} {
		k.rejected = append(k.rejected,
			edit{limit + ": too few", fmt.Sprintf(`{spec: {%s: 63}}`, limit), "spec." + limit, "greater than or equal to 64"},
			edit{limit + ": too many", fmt.Sprintf(`{spec: {%s: 4097}}`, limit), "spec." + limit, "less than or equal to 4096"},
			edit{limit + ": a text", fmt.Sprintf(`{spec: {%s: many}}`, limit), "spec." + limit, "must be of type integer"},
		)
	}
	return k
}
