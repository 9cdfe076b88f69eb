package sluice.lib.shares_test

import data.fixtures
import data.sluice.lib.shares

replicas := [{"name": "L4", "memoryMiB": 24000, "replicas": 3, "replicaResource": "nvidia.com/gpu.shared", "profiles": []}]

mps := fixtures.pool("mps", "MPS", replicas)

sliced := fixtures.pool("sliced", "TimeSlicing", replicas)

limiting := object.union(sliced, {"driverLimits": true})

bursting := object.union(limiting, {"burst": "Allow"})

kai := object.union(object.remove(fixtures.pool("kai", "KAI", [{"memoryMiB": 40000, "profiles": []}, {"memoryMiB": 0, "profiles": []}, {"memoryMiB": 80000, "profiles": []}]), ["nodeSelector"]), {"scheduler": "kai", "nodeSelector": {}})

with_memory_limit(workload, mib) := object.union(workload, {"memoryLimitMiB": mib})

with_share_limit(workload, share) := object.union(workload, {"shareLimit": share})

test_memory_leaves_out_reserve if {
	shares.memory(mps) == 7760 with input as fixtures.input_for(fixtures.share(0.1), [mps])
	shares.memory(kai) == 19400 with input as fixtures.input_for(fixtures.share(0.5), [kai])
	shares.memory(object.union(kai, {"driverReservePercent": 0})) == 20000 with input as fixtures.input_for(fixtures.share(0.5), [kai])
	shares.memory(kai) == 8192 with input as fixtures.input_for(fixtures.memory(8192), [kai])
	shares.memory(fixtures.mig) == 20480 with input as fixtures.input_for(fixtures.share(0.3), [fixtures.mig])
}

test_unknown_memory if {
	unknown := fixtures.pool("new", "MPS", [{"memoryMiB": 0, "replicas": 2, "replicaResource": "nvidia.com/gpu", "profiles": []}])
	not shares.memory(unknown) with input as fixtures.input_for(fixtures.share(0.1), [unknown])
	shares.variables == {} with input as fixtures.input_for(fixtures.share(0.1), [unknown])
	shares.variables == {} with input as fixtures.input_for(fixtures.share(0.1), [object.union(unknown, {"sharing": "TimeSlicing", "driverLimits": true})])
	not shares.memory(fixtures.pool("empty", "KAI", [])) with input as fixtures.input_for(fixtures.share(0.5), [])
}

test_mps if {
	pinned := {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=7760M"}
	shares.variables == pinned with input as fixtures.input_for(fixtures.share(0.1), [mps])
	shares.variables == object.union(pinned, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "33"}) with input as fixtures.input_for(fixtures.share(0.1), [object.union(mps, {"compute": "Strict"})])
}

test_smallest_percentage_is_one if {
	many := object.union(fixtures.pool("many", "MPS", [{"memoryMiB": 80000, "replicas": 200, "replicaResource": "nvidia.com/gpu", "profiles": []}]), {"compute": "Strict"})
	shares.variables.CUDA_MPS_ACTIVE_THREAD_PERCENTAGE == "1" with input as fixtures.input_for(fixtures.share(0.001), [many])
}

test_driver_limits if {
	shares.variables == {} with input as fixtures.input_for(fixtures.share(0.1), [sliced])
	shares.variables == {"NVIDIA_GPU_MEMORY_REQUEST": "7760", "NVIDIA_GPU_MEMORY_LIMIT": "7760"} with input as fixtures.input_for(fixtures.share(0.1), [limiting])
	shares.variables == {"NVIDIA_GPU_MEMORY_REQUEST": "7760", "NVIDIA_GPU_MEMORY_LIMIT": "16000"} with input as fixtures.input_for(with_memory_limit(fixtures.memory(4000), 16000), [bursting])
	shares.variables == {"NVIDIA_GPU_MEMORY_REQUEST": "7760", "NVIDIA_GPU_MEMORY_LIMIT": "7760"} with input as fixtures.input_for(with_memory_limit(fixtures.memory(4000), 5000), [bursting])
	shares.variables.NVIDIA_GPU_MEMORY_LIMIT == "23280" with input as fixtures.input_for(with_memory_limit(fixtures.memory(4000), 16000000), [bursting])
	shares.variables == {"NVIDIA_GPU_MEMORY_REQUEST": "7760", "NVIDIA_GPU_MEMORY_LIMIT": "11640"} with input as fixtures.input_for(with_share_limit(fixtures.share(0.1), 0.5), [bursting])
}

test_driver_limits_of_kai if {
	pool := object.union(kai, {"driverLimits": true})
	shares.variables == {"NVIDIA_GPU_MEMORY_REQUEST": "8192", "NVIDIA_GPU_MEMORY_LIMIT": "8192"} with input as fixtures.input_for(fixtures.memory(8192), [pool])
	shares.variables == {} with input as fixtures.input_for(fixtures.gpus(1), [pool])
	older := object.union(kai, {"name": "older", "nodeSelector": {"kai.scheduler/node-pool": "older"}})
	same_keys := object.union(pool, {"nodeSelector": {"kai.scheduler/node-pool": "kai"}})
	shares.variables == {} with input as fixtures.input_for(fixtures.share(0.5), [same_keys, older])
}

test_smallest_of_selected_pools if {
	queued := [object.union(fixtures.pool(name, "MPS", [{"memoryMiB": memory, "replicas": 2, "replicaResource": "nvidia.com/gpu", "profiles": []}]), {"scheduler": "kueue"}) |
		some [name, memory] in [["a", 80000], ["b", 40000]]
	]
	shares.variables == {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=19400M"} with input as fixtures.input_for(fixtures.share(0.5), queued)
}

test_no_variables_for_other_pods if {
	every pool in [fixtures.whole, fixtures.mig, fixtures.pool("hami", "HAMi", [])] {
		shares.variables == {} with input as fixtures.input_for(fixtures.gpus(1), [pool])
	}
	shares.variables == {} with input as fixtures.input_for(fixtures.share(0.9), [mps])
	shares.variables == {} with input as fixtures.input_for(fixtures.share(0.1), [])
}

refusal(workload, pool) := reason if {
	reason := shares.burst_refusal(pool) with input as fixtures.input_for(workload, [pool])
}

test_burst_is_refused if {
	refusal(with_memory_limit(fixtures.memory(4000), 8000), sliced) == "its spec.burst is Refuse"
	refusal(with_share_limit(fixtures.share(0.1), 0.4), sliced) == "its spec.burst is Refuse"
	refusal(with_memory_limit(fixtures.memory(8192), 8193), kai) == "its spec.burst is Refuse"
	refusal(with_memory_limit(fixtures.share(0.3), 20481), fixtures.mig) == "MIG slices have a fixed size"
	refusal(with_share_limit(fixtures.share(0.3), 0.501), fixtures.mig) == "MIG slices have a fixed size"
	refusal(with_memory_limit(fixtures.share(0.3), 7761), object.union(mps, {"burst": "Allow"})) == "MPS limits each process to a replica"
}

test_burst_is_accepted if {
	not refusal(with_memory_limit(fixtures.memory(4000), 8000), bursting)
	not refusal(with_share_limit(fixtures.share(0.5), 1), object.union(kai, {"burst": "Allow"}))
}

# A limit within what the pod gets is no burst.
test_limit_within_share_is_accepted if {
	not refusal(with_memory_limit(fixtures.memory(4000), 7760), sliced)
	not refusal(with_share_limit(fixtures.share(0.1), 0.3), mps)
	not refusal(with_share_limit(fixtures.share(0.125), 0.13), kai)
	not refusal(with_memory_limit(fixtures.share(0.3), 20480), fixtures.mig)
	not refusal(fixtures.share(0.3), fixtures.mig)
}

# The second evaluation of a pod has the resource instead of the share.
test_second_evaluation if {
	granted := object.union(fixtures.gpus(1), {"form": "Replica", "resources": {"nvidia.com/gpu.shared": 1}, "memoryLimitMiB": 16000})
	shares.variables.NVIDIA_GPU_MEMORY_LIMIT == "16000" with input as fixtures.input_for(granted, [bursting])
	not refusal(granted, bursting)
	whole := object.union(fixtures.gpus(1), {"shareLimit": 0.996})
	not refusal(whole, kai)
}

test_limit_description if {
	shares.limit_description == "16000 MiB of a GPU" with input as fixtures.input_for(with_memory_limit(fixtures.memory(4000), 16000), [])
	shares.limit_description == "0.4 of a GPU" with input as fixtures.input_for(with_share_limit(fixtures.share(0.1), 0.4), [])
}
