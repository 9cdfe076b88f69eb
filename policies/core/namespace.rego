# Renders the objects of each project's namespace: a network policy that allows
# traffic only from its own pods and from ingress controllers, the limits of CPU, memory
# and numbers of objects, and the parameters of admission policies.
package core.namespace

import data.sluice.lib.format
import data.sluice.lib.quotas

# Pods of other projects cannot reach this project's notebooks, and its models only
# through ingress. Network policies are additive: a project can allow more traffic,
# and no policy can deny the traffic that another policy allows.
objects contains namespaced_object("networking.k8s.io/v1", "NetworkPolicy", "sluice-ingress", {
	"podSelector": {},
	"policyTypes": ["Ingress"],
	"ingress": [{"from": array.concat([{"podSelector": {}}], ingress_peers)}],
}) if {
	for_project
}

# ingress_peers allow traffic from the namespaces of ingress controllers.
ingress_peers := [{"namespaceSelector": {"matchExpressions": [{
	"key": "kubernetes.io/metadata.name", # set by the API server, so that users cannot forge it
	"operator": "In",
	"values": sort(input.parameters.ingressNamespaces),
}]}}] if count(input.parameters.ingressNamespaces) > 0

else := []

# The parameters of the admission policy sluice-services, and the time limits that members read.
objects contains namespaced_object("sluice.dev/v1alpha1", "ProjectParameters", "sluice", {
	"services": input.department.services,
	"timeLimits": time_limits,
}) if {
	for_project
}

time_limits := {type: {"maxRuntimeSeconds": limits.maxRuntimeSeconds, "idleTimeoutSeconds": limits.idleTimeoutSeconds} |
	some type, limits in input.project.limits
}

objects contains quotas.resource_quota(object.union(request_limits, object_limits)) if for_project

request_limits := {sprintf("requests.%s", [name]): amount | some name, amount in resource_limits}

# Pods that have ended do not count, unlike other objects.
object_limits := {name: format_int(limit, 10) | some name, limit in input.project.objects}

# If a quota limits a resource, the API server denies pods that do not request it.
# The LimitRange sets a default request.
objects contains namespaced_object("v1", "LimitRange", "sluice-defaults", {"limits": [{"type": "Container", "defaultRequest": {name: amount |
	some name, _ in resource_limits
	amount := default_requests[name]
}}]}) if {
	for_project
	count(resource_limits) > 0
}

# default_requests are the requests of a container without one.
default_requests := {"cpu": input.parameters.defaultCPU, "memory": input.parameters.defaultMemory}

# resource_limits maps cpu and memory to the project's quota, or to the default.
resource_limits := object.union(default_limits, input.project.resources)

# default_limits are what the project's GPU pods may request at most while they use its whole
# limit, on the nodes that offer most, and an allowance for pods without GPUs. The project has
# none where a node pool does not limit its pods.
default_limits[name] := format.amount(name, ceil(total / unit) * unit) if {
	not unlimited
	some name, [allowance, unit] in allowances
	total := allowance + sum([for_gpus |
		some pool in input.nodePools
		factor := max([quotas.milli(factor) | some factor in pool.resourceFactors])
		offered := max([kind.perGPU[name] | some kind in pool.nodeKinds])
		for_gpus := (offered * (quotas.milli(pool.limit) * factor)) / 1000000
	])
}

# allowances are those of the parameters, in thousandths of a CPU and in bytes, with the unit of the quota: a
# CPU and a GiB.
allowances := {
	"cpu": [units.parse(input.parameters.allowanceCPU) * 1000, 1000],
	"memory": [units.parse_bytes(input.parameters.allowanceMemory), 1073741824],
}

unlimited if {
	some pool in input.nodePools
	some factor in pool.resourceFactors
	factor == 0
}

for_project if input.object.kind == "Project"

namespaced_object(api_version, kind, name, spec) := {
	"apiVersion": api_version,
	"kind": kind,
	"metadata": {
		"name": name,
		"namespace": input.project.namespace,
		"labels": {"app.kubernetes.io/managed-by": "sluice"},
	},
	"spec": spec,
}
