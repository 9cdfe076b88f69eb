# The denials of GPU requests that the project's node pools cannot grant. Each names an
# alternative. A GPU pod without such a denial can be charged.
package sluice.lib.denials

import data.sluice.lib.format
import data.sluice.lib.gpumodels
import data.sluice.lib.grants
import data.sluice.lib.kai
import data.sluice.lib.pools
import data.sluice.lib.request

# pool_denials are the denials, in the form of deny.
pool_denials contains {"msg": grant_msg, "fix": grant_fix} if {
	request.includes_gpu
	pools.preferred
	not pools.grant
}

pool_denials contains {
	"msg": sprintf("project %s has no node pool, and so no GPUs", [input.project.name]),
	"fix": "ask an administrator of the department for a quota in a node pool",
} if {
	request.includes_gpu
	count(input.nodePools) == 0
}

pool_denials contains {
	"msg": sprintf("node pool %s is not assigned to project %s, which can use %s", [name, input.project.name, format.list(pools.project_names)]),
	"field": "metadata.annotations[sluice.dev/node-pools]",
	"fix": "name one of these, or leave the annotation out",
} if {
	request.includes_gpu
	count(input.nodePools) > 0
	some name in pools.unknown_names
}

pool_denials contains {
	"msg": sprintf("node pool %s accepts no pods: %s", [pool.name, pool.unsupported]),
	"fix": unsupported_fix,
} if {
	request.includes_gpu
	count(pools.usable) == 0
	some pool in pools.candidates
}

unsupported_fix := sprintf("name another of the project's pools: %s", [format.list(usable_names)]) if {
	count(usable_names) > 0
} else := "ask the cluster administrators"

usable_names := [pool.name | some pool in input.nodePools; pool.unsupported == ""]

# grant_msg denies a request that the preferred pool cannot grant.
grant_msg := sprintf("the pod requests %s, which is no GPU of node pool %s", [grants.named_resource, pools.preferred.name]) if {
	grants.named_resource
} else := sprintf("the pod requests %s; node pool %s offers %s", [request.description, pools.preferred.name, offer])

# offer describes what the preferred pool can grant.
offer := "whole GPUs only" if pools.preferred.sharing == "None"

offer := sprintf("the MIG slices %s", [format.list(slice_names)]) if {
	pools.preferred.sharing == "MIG"
	count(slice_names) > 0
}

offer := "no MIG slices yet" if {
	pools.preferred.sharing == "MIG"
	count(slice_names) == 0
}

offer := sprintf("one replica per pod, which is %s", [format.gpus(gpumodels.replica(pools.preferred).milli)]) if {
	pools.preferred.sharing in {"MPS", "TimeSlicing"}
	input.workload.form != "Memory"
}

offer := sprintf("one replica per pod, which is %d MiB", [gpumodels.replica(pools.preferred).memoryMiB]) if {
	pools.preferred.sharing in {"MPS", "TimeSlicing"}
	input.workload.form == "Memory"
}

offer := "no replicas yet" if {
	pools.preferred.sharing in {"MPS", "TimeSlicing"}
	not gpumodels.replica(pools.preferred)
}

offer := sprintf("shares by %s, which this version of Sluice does not support", [pools.preferred.sharing]) if {
	pools.preferred.sharing == "HAMi"
}

offer := "whole GPUs, and shares of one" if {
	pools.preferred.sharing == "KAI"
	not exceeds_memory
}

offer := sprintf("whole GPUs, and shares of one with at most %d MiB", [exceeds_memory]) if pools.preferred.sharing == "KAI"

# exceeds_memory is the largest memory of a share, if the pod requests more.
exceeds_memory := largest if {
	input.workload.form == "Memory"
	largest := kai.largest_memory(pools.preferred)
	input.workload.memoryMiB > largest
}

slice_names := [profile.name | some model in pools.preferred.products; some profile in model.profiles]

grant_fix := sprintf("use node pool %s: name it in the annotation sluice.dev/node-pools", [pools.granting_names[0]]) if {
	count(pools.granting_names) == 1
} else := sprintf("use one of the node pools %s: name it in the annotation sluice.dev/node-pools", [format.list(pools.granting_names)]) if {
	count(pools.granting_names) > 1
} else := sprintf("request at most %d MiB, or a whole GPU as nvidia.com/gpu in a container's limits", [exceeds_memory]) if {
	pools.preferred.sharing == "KAI"
} else := request_fixes[pools.preferred.sharing]

# request_fixes are the fixes if no pool of the project can grant the request, by the
# sharing of the preferred pool.
request_fixes := {
	"None": "request whole GPUs as nvidia.com/gpu in a container's limits",
	"MIG": "request one of these slices, or with the annotation sluice.dev/gpu a share that fits in one",
	"MPS": "request at most one replica with the annotation sluice.dev/gpu",
	"TimeSlicing": "request at most one replica with the annotation sluice.dev/gpu",
	"KAI": "request a share with the annotation sluice.dev/gpu, or no more memory than one GPU has",
	"HAMi": "ask the cluster administrators for a pool with whole GPUs or MIG slices",
}
