package sluice.lib.grants_test

import data.fixtures
import data.sluice.lib.grants

test_whole_gpus if {
	grants.from_pool(fixtures.whole).milli == 1000 with input.workload as fixtures.gpus(2)
	not grants.from_pool(fixtures.whole) with input.workload as fixtures.share(0.5)
	not grants.from_pool(fixtures.time_sliced) with input.workload as fixtures.gpus(1)
}

test_named_resources if {
	pool := fixtures.named({"amd.com/gpu": 1, "nvidia.com/half": 0.5})
	grants.from_pool(pool).resource == "amd.com/gpu" with input.workload as fixtures.named_gpus("amd.com/gpu", 1)
	grants.from_pool(pool).milli == 500 with input.workload as fixtures.named_gpus("nvidia.com/half", 1)
	grants.from_pool(pool).resource == "nvidia.com/gpu" with input.workload as fixtures.gpus(1)
	grants.from_pool(pool).resource == "amd.com/gpu" with input.workload as fixtures.gpus(1) with input.workload.resources as {}
}

# Only a pool that names a resource has it, with every sharing.
test_named_resources_of_other_pools if {
	every pool in [fixtures.whole, fixtures.mig, fixtures.time_sliced, fixtures.pool("shared", "KAI", [])] {
		not grants.from_pool(pool) with input.workload as fixtures.named_gpus("amd.com/gpu", 1)
	}
}

test_resources_of_other_schedulers_are_replaced if {
	grants.from_pool(fixtures.whole).resource == "nvidia.com/gpu" with input.workload as fixtures.gpus(1)
		with input.workload.resources as {"koordinator.sh/gpu": 100}
}

test_slices if {
	grants.from_pool(fixtures.mig).resource == "nvidia.com/mig-3g.20gb" with input.workload as fixtures.share(0.3)
	grants.from_pool(fixtures.mig).resource == "nvidia.com/mig-7g.40gb" with input.workload as fixtures.gpus(1)
	grants.from_pool(fixtures.mig).milli == 500 with input.workload as fixtures.slices(1, "3g.20gb")
	not grants.from_pool(fixtures.mig) with input.workload as fixtures.slices(1, "2g.10gb")
}

test_replicas if {
	grants.from_pool(fixtures.time_sliced).resource == "nvidia.com/gpu.shared" with input.workload as fixtures.share(0.25)
	not grants.from_pool(fixtures.time_sliced) with input.workload as fixtures.share(0.251)
	not grants.from_pool(fixtures.time_sliced) with input.workload as object.union(fixtures.share(0.1), {"devices": 2})
	not grants.from_pool(fixtures.time_sliced) with input.workload as fixtures.memory(3841)
}

test_no_grant_for_unsupported_sharing if {
	not grants.from_pool(fixtures.pool("hami", "HAMi", [])) with input.workload as fixtures.gpus(1)
}

test_kai_shares if {
	shared := fixtures.pool("shared", "KAI", [{"memoryMiB": 81920, "profiles": []}])
	grants.from_pool(shared).resource == "nvidia.com/gpu" with input.workload as fixtures.gpus(2)
	grants.from_pool(shared).milli == 300 with input.workload as fixtures.share(0.3)
	grants.from_pool(shared).resource == "" with input.workload as fixtures.share(0.3)
	grants.from_pool(shared).milli == 130 with input.workload as fixtures.share(0.125)
	grants.from_pool(shared).resource == "nvidia.com/gpu" with input.workload as fixtures.share(0.991)
	grants.from_pool(shared).milli == 110 with input.workload as fixtures.memory(8400)
	grants.from_pool(shared).resource == "" with input.workload as fixtures.memory(81900)
	not grants.from_pool(shared) with input.workload as fixtures.memory(81901)
	not grants.from_pool(shared) with input.workload as fixtures.slices(1, "3g.20gb")
}
