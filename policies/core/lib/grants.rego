# The grant of a pool for the pod's request: of(pool) has the resource of one device,
# its singular and plural names, and its charge in thousandths of a GPU. It is
# undefined if the pool cannot grant the request.
package sluice.lib.grants

import data.sluice.lib.boards
import data.sluice.lib.kai
import data.sluice.lib.words

of(pool) := granted if {
	pool.sharing == "None"
	input.workload.form == "Whole"
	granted := {"resource": whole_resource, "milli": 1000, "name": "a whole GPU", "names": "whole GPUs"}
}

of(pool) := slice(profile) if {
	pool.sharing == "MIG"
	profile := profile_of(pool)
}

of(pool) := granted if {
	pool.sharing in {"MPS", "TimeSlicing"}
	replica := boards.replica(pool)
	becomes_replica(replica)
	granted := {"resource": replica.resource, "milli": replica.milli, "name": "a replica of a GPU", "names": "replicas of a GPU"}
}

# KAI-Scheduler grants whole GPUs by a resource, and shares by an annotation.
of(pool) := {"resource": whole_resource, "milli": 1000, "name": "a whole GPU", "names": "whole GPUs"} if {
	pool.sharing == "KAI"
	input.workload.form == "Whole"
}

of(pool) := {"resource": "", "milli": milli, "name": words.gpus(milli), "names": sprintf("times %s", [words.gpus(milli)])} if {
	pool.sharing == "KAI"
	milli := share_of(pool)
}

share_of(_) := words.milli(input.workload.share) if input.workload.form == "Share"

share_of(pool) := kai.share(pool, input.workload.memoryMiB) if input.workload.form == "Memory"

slice(profile) := {
	"resource": profile.resource,
	"milli": profile.milli,
	"name": sprintf("a slice %s", [profile.name]),
	"names": sprintf("slices %s", [profile.name]),
}

# profile_of is the profile of each device: the profile that the pod names, or else
# the smallest profile that is large enough for the share, the whole GPU or the
# memory.
profile_of(pool) := boards.profile(pool, input.workload.migProfile) if input.workload.form == "MIG"

profile_of(pool) := boards.smallest(pool, words.milli(input.workload.share), 0) if {
	input.workload.form in {"Share", "Whole"}
}

profile_of(pool) := boards.smallest(pool, 0, input.workload.memoryMiB) if {
	input.workload.form == "Memory"
}

# A pod gets at most one replica: two of them can belong to one GPU.
becomes_replica(replica) if {
	input.workload.devices == 1
	fits_replica(replica)
}

fits_replica(replica) if {
	input.workload.form == "Share"
	words.milli(input.workload.share) <= replica.milli
}

fits_replica(replica) if {
	input.workload.form == "Memory"
	input.workload.memoryMiB <= replica.memoryMiB
}

# The resource of a replica can have the same name as the resource of a GPU. A pod
# that was already mutated can therefore have the form Whole.
fits_replica(replica) if {
	input.workload.form in {"Replica", "Whole"}
	replica.resource in object.keys(input.workload.resources)
}

# whole_resource is the resource of a whole GPU. It is the resource that the pod
# requests, so GPUs of other vendors keep their resource. Resources of other
# schedulers are replaced.
whole_resource := name if {
	some name, _ in input.workload.resources
	not startswith(name, "volcano.sh/")
	not startswith(name, "koordinator.sh/")
} else := "nvidia.com/gpu"
