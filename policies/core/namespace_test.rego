package core.namespace_test

import data.core.namespace as policy
import data.fixtures

default_parameters := {
	"ingressNamespaces": ["traefik", "ingress-nginx"],
	"defaultCPU": "100m", "defaultMemory": "256Mi", "allowanceCPU": "50", "allowanceMemory": "125Gi",
}

project(resources) := {
	"object": {"kind": "Project"},
	"project": object.union(fixtures.project, {"resources": resources}),
	"department": {"services": {"types": ["ClusterIP"], "ingressHosts": ["*.h2.example.org"]}},
	"parameters": default_parameters,
	"nodePools": [object.union(fixtures.whole, {"resourceFactors": {"nonPreemptible": 1, "preemptible": 0}})],
}

with_default(pools) := object.union(project({}), {"nodePools": pools})

specs := {sprintf("%s %s", [object.kind, object.metadata.name]): object.spec | some object in policy.objects}

test_ingress_from_own_pods_and_ingress_controllers if {
	objects := specs with input as project({})
	objects == {
		"NetworkPolicy sluice-ingress": {
			"podSelector": {},
			"policyTypes": ["Ingress"],
			"ingress": [{"from": [
				{"podSelector": {}},
				{"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["ingress-nginx", "traefik"]}]}},
			]}],
		},
		"ResourceQuota sluice": {"hard": {}},
		"ProjectParameters sluice": {
			"services": {"types": ["ClusterIP"], "ingressHosts": ["*.h2.example.org"]},
			"timeLimits": {
				"train": {"maxRuntimeSeconds": 172800, "idleTimeoutSeconds": 0},
				"interactive": {"maxRuntimeSeconds": 28800, "idleTimeoutSeconds": 7200},
				"inference": {"maxRuntimeSeconds": 0, "idleTimeoutSeconds": 0},
			},
		},
	}
}

test_ingress_from_own_pods_only if {
	objects := specs with input as project({}) with input.parameters.ingressNamespaces as []
	objects["NetworkPolicy sluice-ingress"].ingress == [{"from": [{"podSelector": {}}]}]
}

test_cpu_and_memory_quota if {
	objects := specs with input as project({"cpu": "64", "memory": "512Gi"})
	objects["ResourceQuota sluice"] == {"hard": {"requests.cpu": "64", "requests.memory": "512Gi"}}
	objects["LimitRange sluice-defaults"] == {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "256Mi"}}]}
}

test_default_quota if {
	kinds := [
		{"product": "A100", "gpus": 8, "perGPU": {"cpu": 31875, "memory": 137438953472}},
		{"product": "T4", "gpus": 1, "perGPU": {"cpu": 4000, "memory": 17179869184}},
	]
	pools := [object.union(fixtures.whole, {"nodeKinds": kinds}), object.union(fixtures.mig, {"limit": 0.5, "weight": 1})]

	# 2 GPUs with 1.5 times 31.875 CPUs, half a GPU with 1.5 times 12 CPUs, and 50 CPUs.
	objects := specs with input as with_default(pools)
	objects["ResourceQuota sluice"] == {"hard": {"requests.cpu": "155", "requests.memory": "569Gi"}}
	objects["LimitRange sluice-defaults"] == {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "256Mi"}}]}
	none := specs with input as with_default([])
	none["ResourceQuota sluice"] == {"hard": {"requests.cpu": "50", "requests.memory": "125Gi"}}
	set := specs with input as object.union(with_default(pools), {"project": {"resources": {"cpu": "1"}}})
	set["ResourceQuota sluice"] == {"hard": {"requests.cpu": "1", "requests.memory": "569Gi"}}
	allowed := specs with input as with_default([]) with input.parameters.allowanceCPU as "500m" with input.parameters.allowanceMemory as "1Ti"
	allowed["ResourceQuota sluice"] == {"hard": {"requests.cpu": "1", "requests.memory": "1Ti"}}
}

test_quota_of_objects if {
	limits := {"pods": 500, "count/jobs.batch": 0}
	specs["ResourceQuota sluice"] == {"hard": {"pods": "500", "count/jobs.batch": "0"}} with input as project({})
		with input.project.objects as limits
}

test_quota_of_memory_only if {
	objects := specs with input as project({"memory": "512Gi"})
	objects["ResourceQuota sluice"] == {"hard": {"requests.memory": "512Gi"}}
	objects["LimitRange sluice-defaults"] == {"limits": [{"type": "Container", "defaultRequest": {"memory": "256Mi"}}]}
}

test_objects_are_in_namespace_of_project if {
	namespaces := {object.metadata.namespace | some object in policy.objects} with input as project({"cpu": "1"})
	namespaces == {"thesis"}
}

test_other_kinds_have_no_objects if {
	count(policy.objects) == 0 with input as object.union(project({"cpu": "1"}), {"object": {"kind": "Department"}})
	count(policy.objects) == 0 with input as object.union(project({"cpu": "1"}), {"object": {"kind": "Pod"}})
}
