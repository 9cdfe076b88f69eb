# What each project's namespace has besides its GPUs: its pods are reached by its
# own and by the ingress controllers, and stay within its CPU and memory.
package core.namespace

# Others' pods do not reach this project's: not its notebooks, and not its models
# but by the way in. Network policies only ever add to each other, so nobody closes
# by one what another opens.
objects contains rendered("networking.k8s.io/v1", "NetworkPolicy", "sluice-ingress", {
	"podSelector": {},
	"policyTypes": ["Ingress"],
	"ingress": [{"from": array.concat([{"podSelector": {}}], controllers)}],
}) if {
	about_project
}

controllers := [{"namespaceSelector": {"matchExpressions": [{
	"key": "kubernetes.io/metadata.name", # the API server's own, so that no label lets anybody in
	"operator": "In",
	"values": sort(input.parameters.ingressNamespaces),
}]}}] if count(input.parameters.ingressNamespaces) > 0

else := []

objects contains rendered("v1", "ResourceQuota", "sluice-resources", {"hard": {sprintf("requests.%s", [name]): amount |
	some name, amount in limited
}}) if {
	about_project
	count(limited) > 0
}

# Where a resource is limited, the API server refuses pods that do not say how much
# of it they want.
objects contains rendered("v1", "LimitRange", "sluice-defaults", {"limits": [{"type": "Container", "defaultRequest": {name: amount |
	some name, _ in limited
	amount := said[name]
}}]}) if {
	about_project
	count(limited) > 0
}

said := {"cpu": input.parameters.defaultCPU, "memory": input.parameters.defaultMemory}

# limited are the project's quotas, by resource.
limited := {name: amount |
	some name in ["cpu", "memory"]
	amount := input.project.resources[name]
}

about_project if input.object.kind == "Project"

rendered(api_version, kind, name, spec) := {
	"apiVersion": api_version,
	"kind": kind,
	"metadata": {
		"name": name,
		"namespace": input.project.namespace,
		"labels": {"app.kubernetes.io/managed-by": "sluice"},
	},
	"spec": spec,
}
