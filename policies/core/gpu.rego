# Replaces the GPU request of a pod by a resource of its node pool: a GPU, a MIG
# slice or a replica. core.quota charges the resource.
package core.gpu

import data.sluice.lib.containers
import data.sluice.lib.format
import data.sluice.lib.grants
import data.sluice.lib.pools
import data.sluice.lib.quotas
import data.sluice.lib.request
import data.sluice.lib.shares

overrides.spec[list] := patches if {
	needs_other_resource
	some list in ["containers", "initContainers"]
	patches := [{"name": container.spec.name, "resources": {"limits": {pools.grant.resource: format_int(input.workload.devices, 10)}}} |
		some container in containers.entries
		container.list == list
		container.spec.name == input.workload.container
	]
	count(patches) > 0
}

# needs_other_resource: the pod does not request the granted resource by its name.
needs_other_resource if {
	request.includes_gpu
	pools.grant.resource != "" # the scheduler grants a share by an annotation
	not pools.grant.resource in object.keys(input.workload.resources)
}

# Any other GPU resource would request additional GPUs of another kind.
remove contains ["spec", container.list, {"name": container.spec.name}, "resources", kind, name] if {
	request.includes_gpu
	some container in containers.entries
	some kind in ["limits", "requests"]
	some name, _ in container.spec.resources[kind]
	containers.is_gpu_resource(name)
	name != pools.grant.resource
}

deny contains {
	"msg": sprintf("%d containers request GPUs by resources that node pool %s does not have: %s", [
		count(containers.names_with_gpu_resources), pools.preferred.name, format.list(containers.names_with_gpu_resources),
	]),
	"fix": sprintf("request %s in each of them", [pools.grant.resource]),
} if {
	needs_other_resource
	count(containers.names_with_gpu_resources) > 1
}

deny contains {
	"msg": "the pod of a DaemonSet cannot have GPUs: it would occupy a GPU of every node, regardless of the queue",
	"fix": "use a Job, a Deployment or a StatefulSet",
} if {
	request.includes_gpu
	request.from_daemon_set
}

# A pod within its share must get the memory of its share, so most pools let none exceed it.
deny contains {
	"msg": sprintf("the pod's memory limit is %s, more than the share that it gets in node pool %s, which allows no more: %s", [
		shares.limit_description, pools.preferred.name, shares.burst_refusal(pools.preferred),
	]),
	"fix": burst_fix,
} if {
	request.includes_gpu
	pools.grant
	shares.burst_refusal(pools.preferred)
}

burst_fix := sprintf("remove the limit, or name one of the node pools that allow it in the annotation sluice.dev/node-pools: %s", [format.list(bursting_names)]) if {
	count(bursting_names) > 0
} else := "remove the limit, or request as much as the limit"

# bursting_names are the names of the project's pools that accept the limit.
bursting_names := [pool.name |
	some pool in input.nodePools
	pool.unsupported == ""
	grants.from_pool(pool)
	not shares.burst_refusal(pool)
]

warn contains sprintf("%s became %s in node pool %s; the pod counts as %s", [
	request.description, pools.grant_description, pools.preferred.name, format.gpus(pools.charge),
]) if {
	differs_from_request
	not several_slices
}

# The slices are on different GPUs, or cannot be on one.
warn contains {
	"msg": sprintf("the %d GPUs became %s in node pool %s: a program cannot use several MIG slices as one GPU, and they do not communicate directly", [
		input.workload.devices, pools.grant_description, pools.preferred.name,
	]),
	"fix": "request one, or use a node pool with whole GPUs",
} if {
	several_slices
}

# several_slices: the pod requests several GPUs and gets MIG slices.
several_slices if {
	pools.preferred.sharing == "MIG"
	input.workload.form == "Whole"
	input.workload.devices > 1
	pools.grant
}

# differs_from_request: the grant can have another size or kind than the request.
differs_from_request if {
	input.workload.form == "Share"
	pools.charge > input.workload.devices * quotas.milli(input.workload.share)
}

differs_from_request if {
	input.workload.form == "Memory"
	pools.grant
}

differs_from_request if {
	input.workload.form == "Whole"
	pools.grant.milli < 1000
}

# The author's resource is removed: the warning says what the pod gets in its place.
differs_from_request if {
	needs_other_resource
	count(remove) > 0
}
