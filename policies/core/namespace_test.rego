package core.namespace_test

import data.core.namespace as policy
import data.fixtures

shipped := {"ingressNamespaces": ["traefik", "ingress-nginx"], "defaultCPU": "100m", "defaultMemory": "256Mi"}

project(resources) := {
	"object": {"kind": "Project"},
	"project": object.union(fixtures.project, {"resources": resources}),
	"parameters": shipped,
}

specs := {sprintf("%s %s", [one.kind, one.metadata.name]): one.spec | some one in policy.objects}

test_reached_by_its_own_and_by_ingress_controllers if {
	all := specs with input as project({})
	all == {"NetworkPolicy sluice-ingress": {
		"podSelector": {},
		"policyTypes": ["Ingress"],
		"ingress": [{"from": [
			{"podSelector": {}},
			{"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["ingress-nginx", "traefik"]}]}},
		]}],
	}}
}

test_by_its_own_alone if {
	all := specs with input as project({}) with input.parameters.ingressNamespaces as []
	all["NetworkPolicy sluice-ingress"].ingress == [{"from": [{"podSelector": {}}]}]
}

test_cpu_and_memory if {
	all := specs with input as project({"cpu": "64", "memory": "512Gi"})
	all["ResourceQuota sluice-resources"] == {"hard": {"requests.cpu": "64", "requests.memory": "512Gi"}}
	all["LimitRange sluice-defaults"] == {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "256Mi"}}]}
}

test_what_is_not_limited_is_not_said if {
	all := specs with input as project({"memory": "512Gi"})
	all["ResourceQuota sluice-resources"] == {"hard": {"requests.memory": "512Gi"}}
	all["LimitRange sluice-defaults"] == {"limits": [{"type": "Container", "defaultRequest": {"memory": "256Mi"}}]}
}

test_in_the_namespace_of_the_project if {
	places := {one.metadata.namespace | some one in policy.objects} with input as project({"cpu": "1"})
	places == {"thesis"}
}

test_projects_alone if {
	count(policy.objects) == 0 with input as object.union(project({"cpu": "1"}), {"object": {"kind": "Department"}})
	count(policy.objects) == 0 with input as object.union(project({"cpu": "1"}), {"object": {"kind": "Pod"}})
}
