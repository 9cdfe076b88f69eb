package sluice.lib.kai_test

import data.fixtures
import data.sluice.lib.kai

shared := fixtures.pool("shared", "KAI", [{"memoryMiB": 81920, "profiles": []}, {"memoryMiB": 40960, "profiles": []}])

test_settings_override_defaults if {
	kai.queue_label_key(shared) == "kai.scheduler/queue"
	renamed := object.union(shared, {"settings": {"queueLabelKey": "runai/queue", "schedulerName": "runai-scheduler"}})
	kai.queue_label_key(renamed) == "runai/queue"
	kai.scheduler_name(renamed) == "runai-scheduler"
	kai.shard_label_key(renamed) == "kai.scheduler/node-pool"
}

test_shard_is_node_label if {
	sharded := object.union(shared, {"nodeSelector": {"kai.scheduler/node-pool": "a100"}})
	kai.shard_labels(sharded) == {"kai.scheduler/node-pool": "a100"}
	kai.shard_name(sharded) == "a100"
	kai.shard_labels(shared) == {}
	kai.shard_name(shared) == "default"
}

test_memory_is_rounded_up_for_smallest_gpu if {
	kai.memory_milli(shared, 4090) == 100
	kai.memory_milli(shared, 4091) == 110
	kai.memory_milli(shared, 50000) == 620
	kai.memory_milli(shared, 81900) == 1000
	not kai.memory_milli(shared, 81901)
	kai.largest_memory(shared) == 81900
	not kai.largest_memory(fixtures.pool("unknown", "KAI", [{"memoryMiB": 0, "profiles": []}]))
}

test_share_is_rounded_up if {
	[kai.share_milli(milli) | some milli in [1, 4, 10, 125, 130, 990, 991]] == [10, 10, 10, 130, 130, 990, 1000]
}

is_reference(metadata, name) if {
	spec := {"initContainers": [{"name": "load"}], "containers": [{"name": "proxy"}, {"name": "main"}]}
	kai.is_device_reference({"name": "main"}, {"name": name}) with input as {"object": {"metadata": metadata, "spec": spec}}
}

annotated(prefix) := {"annotations": {"runai/shared-gpu-configmap": prefix}}

test_device_reference_of_this_container if {
	is_reference(annotated("train-x8b2k4z-shared-gpu"), "train-x8b2k4z-shared-gpu-1")
	is_reference(annotated("train-x8b2k4z-shared-gpu"), "train-x8b2k4z-shared-gpu-1-evar")
	not is_reference(annotated("train-x8b2k4z-shared-gpu"), "train-x8b2k4z-shared-gpu-0")
	not is_reference(annotated("train-x8b2k4z-shared-gpu"), "train-x8b2k4z-shared-gpu-i1")
	not is_reference(annotated("train-x8b2k4z-shared-gpu"), "train-x8b2k4z-shared-gpu-1-mine")
}

test_device_reference_of_another_pod if {
	not is_reference({}, "train-x8b2k4z-shared-gpu-1")
	not is_reference(annotated("train-x8b2k4z-shared-gpu"), "other-a7c3l5y-shared-gpu-1")
	not is_reference(annotated("shared-gpu"), "shared-gpu-1")
}

owned(name) := object.union(annotated("train-x8b2k4z-shared-gpu"), {"ownerReferences": [{"name": name}]})

test_device_reference_of_another_owner if {
	is_reference(owned("train"), "train-x8b2k4z-shared-gpu-1")
	not is_reference(owned("train-2"), "train-x8b2k4z-shared-gpu-1")
	long := "a-workload-with-a-very-long-name-of-fifty-characters"
	cut := object.union(annotated(sprintf("%s-x8b2k4z-shared-gpu", [substring(long, 0, 33)])), {"ownerReferences": [{"name": long}]})
	is_reference(cut, sprintf("%s-x8b2k4z-shared-gpu-1", [substring(long, 0, 33)]))
}

test_units_per_gpu if {
	kai.units_per_gpu(fixtures.mig) == 7
	kai.units_per_gpu(fixtures.pool("bare", "MIG", [])) == 7
	kai.units_per_gpu(shared) == 1
}

test_preempted_pods_without_mark if {
	on_kai := object.union(shared, {"scheduler": "kai"})
	kai.leaves_preempted_pods_unmarked(object.union(on_kai, {"settings": {"updatePodEvictionCondition": "false"}}))
	not kai.leaves_preempted_pods_unmarked(object.union(on_kai, {"settings": {"updatePodEvictionCondition": "true"}}))
	not kai.leaves_preempted_pods_unmarked(on_kai)
	not kai.leaves_preempted_pods_unmarked(object.union(shared, {"settings": {"updatePodEvictionCondition": "false"}}))
}
