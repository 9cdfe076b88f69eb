# What a pod may use of a shared GPU, and how its node pool limits the pod to it. Shares
# are parts of the memory that the driver leaves.
package sluice.lib.shares

import data.sluice.lib.format
import data.sluice.lib.gpumodels
import data.sluice.lib.grants
import data.sluice.lib.pools
import data.sluice.lib.quotas

# memory returns the GPU memory that the pod gets at least of each device in a pool, in
# MiB. It is undefined if the memory of the pool's GPUs is unknown.
memory(pool) := replica.memoryMiB if {
	pool.sharing in {"MPS", "TimeSlicing"}
	replica := gpumodels.replica(pool)
	replica.memoryMiB > 0
}

memory(pool) := grants.requested_profile(pool).memoryMiB if pool.sharing == "MIG"

memory(pool) := input.workload.memoryMiB if {
	pool.sharing == "KAI"
	input.workload.form == "Memory"
}

memory(pool) := floor((min(memories) * grants.from_pool(pool).milli) / 1000) if {
	pool.sharing == "KAI"
	input.workload.form in {"Share", "Whole"}
	memories := [gpumodels.usable_memory(pool, model) | some model in pool.products; model.memoryMiB > 0]
}

# requests_burst: the pod has a limit of GPU memory above what it gets in a pool.
requests_burst(pool) if {
	input.workload.memoryLimitMiB > 0
	not memory_limit_fits(pool)
}

requests_burst(pool) if {
	input.workload.shareLimit > 0
	not share_limit_fits(pool)
}

memory_limit_fits(pool) if input.workload.memoryLimitMiB <= memory(pool)

share_limit_fits(pool) if quotas.milli(input.workload.shareLimit) <= smallest_milli(pool)

# smallest_milli returns the part of a GPU that each device of the pod is at least, in
# thousandths.
smallest_milli(pool) := grants.requested_profile(pool).minMilli if pool.sharing == "MIG"

else := grants.from_pool(pool).milli

# burst_refusal returns why a pool refuses the limit of the pod. It is undefined if the
# pool accepts the limit.
burst_refusal(pool) := fixed_sizes[pool.sharing] if {
	requests_burst(pool)
} else := "its spec.burst is Refuse" if {
	requests_burst(pool)
	pool.burst != "Allow"
}

# fixed_sizes are the ways of sharing in which no pod can exceed its share. The MPS daemon
# of NVIDIA's device plugin limits all clients to a replica, and a client's own variables
# can only lower that.
fixed_sizes := {
	"None": "whole GPUs have a fixed size",
	"MIG": "MIG slices have a fixed size",
	"MPS": "MPS limits each process to a replica",
	"HAMi": "HAMi limits each container to its share",
}

# limit_description describes the limit of the pod for messages: "16384 MiB of a GPU".
limit_description := sprintf("%d MiB of a GPU", [input.workload.memoryLimitMiB]) if input.workload.memoryLimitMiB > 0

else := format.gpus(quotas.milli(input.workload.shareLimit))

# variables are the variables that limit a container with the pod's GPU, by name. Kueue
# and KAI-Scheduler can choose one of several pools, of which the smallest share counts.
variables := mps_variables if {
	pools.preferred.sharing == "MPS"
	pools.grant
} else := driver_variables if {
	every pool in pools.selected {
		pool.driverLimits
	}
	pools.grant # last, since it takes the most time
} else := {}

# The MPS daemon of NVIDIA's device plugin divides all memory of a GPU by the replicas. A
# pod has one replica, whose GPU is the first and only one in the container.
mps_variables := object.union(
	{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": sprintf("0=%dM", [smallest_memory]) | smallest_memory},
	{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": sprintf("%d", [smallest_percentage]) | pools.preferred.compute == "Strict"},
)

smallest_memory := min([memory(pool) | some pool in pools.selected])

smallest_percentage := max([1, floor(min([grants.from_pool(pool).milli | some pool in pools.selected]) / 10)])

# NVIDIA's container toolkit passes both to the driver, in MiB: the memory that the
# container is guaranteed, and the memory up to which it may burst.
driver_variables := {
	"NVIDIA_GPU_MEMORY_REQUEST": sprintf("%d", [smallest_memory]),
	"NVIDIA_GPU_MEMORY_LIMIT": sprintf("%d", [max([smallest_memory, burst_limit])]),
} if {
	is_share
} else := {}

# is_share: the pod has a part of a GPU.
is_share if pools.preferred.sharing == "TimeSlicing"

is_share if pools.grant.resource == ""

# burst_limit is the limit of the pod in MiB, at most the memory of the smallest GPU, or 0.
burst_limit := min([input.workload.memoryLimitMiB, smallest_gpu]) if input.workload.memoryLimitMiB > 0

else := floor((smallest_gpu * quotas.milli(input.workload.shareLimit)) / 1000) if input.workload.shareLimit > 0

else := 0

smallest_gpu := min([gpumodels.usable_memory(pool, model) |
	some pool in pools.selected
	some model in pool.products
	model.memoryMiB > 0
])
