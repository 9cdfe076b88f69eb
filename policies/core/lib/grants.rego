# What a pool gives for what a pod asks: of(pool) is the resource that one device
# becomes there, what one and several of it are called, and how many thousandths of a GPU it is
# charged. It is undefined where the pool cannot give what is asked.
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

# KAI-Scheduler gives whole GPUs, and shares for which there is no resource.
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

# profile_of is the profile that each device becomes: the one that is named, the
# smallest that has what is asked for, or one that is a whole GPU.
profile_of(pool) := boards.profile(pool, input.workload.migProfile) if input.workload.form == "MIG"

profile_of(pool) := boards.smallest(pool, words.milli(input.workload.share), 0) if {
	input.workload.form in {"Share", "Whole"}
}

profile_of(pool) := boards.smallest(pool, 0, input.workload.memoryMiB) if {
	input.workload.form == "Memory"
}

# A replica is all that is ever given: two of them may be of one GPU.
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

# A replica may keep the name of the GPU: a pod that was given one asks for it.
fits_replica(replica) if {
	input.workload.form in {"Replica", "Whole"}
	replica.resource in object.keys(input.workload.resources)
}

# whole_resource is what stands for a GPU: the name that the pod has for it, so
# that other makers' GPUs stay what they are, but for the names of engines that
# are not the pool's.
whole_resource := name if {
	some name, _ in input.workload.resources
	not startswith(name, "volcano.sh/")
	not startswith(name, "koordinator.sh/")
} else := "nvidia.com/gpu"
