# The resources that node pools grant for the request of a pod.
package sluice.lib.grants

import data.sluice.lib.format
import data.sluice.lib.gpumodels
import data.sluice.lib.kai
import data.sluice.lib.quotas

# from_pool returns the grant of a pool: the resource of one device, its singular and
# plural names, and its charge in thousandths of a GPU. It is undefined if the pool
# cannot grant the request.
from_pool(pool) := by_sharing(pool) if not named_resource

# Only the pools that name a resource of their own as their GPU have it.
from_pool(pool) := {"resource": offered.name, "milli": quotas.milli(offered.gpus), "singular": offered.name, "plural": offered.name} if {
	some offered in pool.resources
	offered.name == named_resource
}

# named_resource is the resource that the pod requests and that Sluice knows as a GPU only
# because a node pool names it.
named_resource := name if {
	some name, _ in input.workload.resources
	not name in {"nvidia.com/gpu", "nvidia.com/gpu.shared"}
	not strings.any_prefix_match(name, {"nvidia.com/mig-", "volcano.sh/", "koordinator.sh/"})
}

by_sharing(pool) := whole_gpu(pool) if {
	pool.sharing == "None"
	input.workload.form == "Whole"
}

by_sharing(pool) := slice_grant(profile) if {
	pool.sharing == "MIG"
	profile := requested_profile(pool)
}

by_sharing(pool) := grant if {
	pool.sharing in {"MPS", "TimeSlicing"}
	replica := gpumodels.replica(pool)
	fits_replica(replica)
	grant := {"resource": replica.resource, "milli": replica.milli, "singular": "a replica of a GPU", "plural": "replicas of a GPU"}
}

# KAI-Scheduler grants whole GPUs by a resource, and shares by an annotation. A share of
# more than 0.99 becomes a whole GPU.
by_sharing(pool) := whole_gpu(pool) if {
	pool.sharing == "KAI"
	input.workload.form in {"Whole", "Share"}
	kai_share_milli == 1000
}

by_sharing(pool) := annotated_share(kai_share_milli) if {
	pool.sharing == "KAI"
	input.workload.form == "Share"
	kai_share_milli < 1000
}

by_sharing(pool) := annotated_share(kai.memory_milli(pool, input.workload.memoryMiB)) if {
	pool.sharing == "KAI"
	input.workload.form == "Memory"
}

kai_share_milli := kai.share_milli(quotas.milli(input.workload.share))

whole_gpu(pool) := {"resource": whole_gpu_resource(pool), "milli": 1000, "singular": "a whole GPU", "plural": "whole GPUs"}

annotated_share(milli) := {"resource": "", "milli": milli, "singular": format.gpus(milli), "plural": sprintf("times %s", [format.gpus(milli)])}

slice_grant(profile) := {
	"resource": profile.resource,
	"milli": profile.milli,
	"singular": sprintf("a slice %s", [profile.name]),
	"plural": sprintf("slices %s", [profile.name]),
}

# requested_profile returns the profile of each device: the profile that the pod names,
# or else the smallest profile that is large enough for the share, the whole GPU or the
# memory.
requested_profile(pool) := gpumodels.profile(pool, input.workload.migProfile) if input.workload.form == "MIG"

requested_profile(pool) := gpumodels.smallest_profile(pool, quotas.milli(input.workload.share), 0) if {
	input.workload.form in {"Share", "Whole"}
}

requested_profile(pool) := gpumodels.smallest_profile(pool, 0, input.workload.memoryMiB) if {
	input.workload.form == "Memory"
}

# fits_replica: one replica is enough for the request. A pod gets at most one, since two
# replicas can belong to one GPU.
fits_replica(replica) if {
	input.workload.devices == 1
	size_fits_replica(replica)
}

size_fits_replica(replica) if {
	input.workload.form == "Share"
	quotas.milli(input.workload.share) <= replica.milli
}

size_fits_replica(replica) if {
	input.workload.form == "Memory"
	input.workload.memoryMiB <= replica.memoryMiB
}

# The resource of a replica can have the same name as the resource of a GPU. A pod
# that was already mutated can therefore have the form Whole.
size_fits_replica(replica) if {
	input.workload.form in {"Replica", "Whole"}
	replica.resource in object.keys(input.workload.resources)
}

# whole_gpu_resource returns the resource of a whole GPU of a pool, for a pod that does not
# request it by a name of the pool's own: the first of these, if the pod names none.
whole_gpu_resource(pool) := [offered.name | some offered in pool.resources; offered.gpus == 1][0] if {
	not input.workload.resources["nvidia.com/gpu"]
} else := "nvidia.com/gpu"
