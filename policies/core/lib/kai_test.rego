package sluice.lib.kai_test

import data.fixtures
import data.sluice.lib.kai

shared := fixtures.pool("shared", "KAI", [{"memoryMiB": 81920, "profiles": []}, {"memoryMiB": 40960, "profiles": []}])

test_keys_are_the_usual_ones_unless_they_were_found_otherwise if {
	kai.queue_key(shared) == "kai.scheduler/queue"
	renamed := object.union(shared, {"settings": {"queueLabelKey": "runai/queue", "schedulerName": "runai-scheduler"}})
	kai.queue_key(renamed) == "runai/queue"
	kai.scheduler(renamed) == "runai-scheduler"
	kai.shard_key(renamed) == "kai.scheduler/node-pool"
}

test_a_shard_is_what_the_nodes_are_labeled if {
	sharded := object.union(shared, {"nodeSelector": {"kai.scheduler/node-pool": "a100"}})
	kai.shard_labels(sharded) == {"kai.scheduler/node-pool": "a100"}
	kai.shard_name(sharded) == "a100"
	kai.shard_labels(shared) == {}
	kai.shard_name(shared) == "default"
}

test_memory_is_rounded_up_as_kai_does_and_charged_the_most if {
	kai.share(shared, 4096) == 100
	kai.share(shared, 4097) == 110
	kai.share(shared, 50000) == 620
	not kai.share(shared, 81921)
}

test_what_kai_writes_of_devices if {
	kai.writes_devices({"name": "train-x8b2k4z-shared-gpu-0"})
	kai.writes_devices({"name": "train-x8b2k4z-shared-gpu-i1-evar"})
	not kai.writes_devices({"name": "shared-gpu-0"})
	not kai.writes_devices({"name": "train-shared-gpu-0-mine"})
}

test_slices_are_what_is_counted_of_mig if {
	kai.slices(fixtures.cut) == 7
	kai.slices(fixtures.pool("bare", "MIG", [])) == 7
	kai.slices(shared) == 1
}
