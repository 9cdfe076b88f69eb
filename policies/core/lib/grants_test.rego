package sluice.lib.grants_test

import data.fixtures
import data.sluice.lib.grants

test_whole if {
	grants.of(fixtures.whole).milli == 1000 with input.workload as fixtures.gpus(2)
	not grants.of(fixtures.whole) with input.workload as fixtures.share(0.5)
	not grants.of(fixtures.taken) with input.workload as fixtures.gpus(1)
}

test_other_makers_keep_their_names if {
	grants.of(fixtures.whole).resource == "amd.com/gpu" with input.workload as fixtures.gpus(1)
		with input.workload.resources as {"amd.com/gpu": 1}
	grants.of(fixtures.whole).resource == "nvidia.com/gpu" with input.workload as fixtures.gpus(1)
		with input.workload.resources as {"koordinator.sh/gpu": 100}
}

test_slices if {
	grants.of(fixtures.cut).resource == "nvidia.com/mig-3g.20gb" with input.workload as fixtures.share(0.3)
	grants.of(fixtures.cut).resource == "nvidia.com/mig-7g.40gb" with input.workload as fixtures.gpus(1)
	grants.of(fixtures.cut).milli == 500 with input.workload as fixtures.slices(1, "3g.20gb")
	not grants.of(fixtures.cut) with input.workload as fixtures.slices(1, "2g.10gb")
}

test_replicas if {
	grants.of(fixtures.taken).resource == "nvidia.com/gpu.shared" with input.workload as fixtures.share(0.25)
	not grants.of(fixtures.taken) with input.workload as fixtures.share(0.251)
	not grants.of(fixtures.taken) with input.workload as object.union(fixtures.share(0.1), {"devices": 2})
	not grants.of(fixtures.taken) with input.workload as fixtures.memory(3841)
}

test_nothing_of_engines_to_come if {
	not grants.of(fixtures.pool("later", "HAMi", [])) with input.workload as fixtures.gpus(1)
}

test_shares_by_kai if {
	shared := fixtures.pool("shared", "KAI", [{"memoryMiB": 81920, "profiles": []}])
	grants.of(shared).resource == "nvidia.com/gpu" with input.workload as fixtures.gpus(2)
	grants.of(shared).milli == 300 with input.workload as fixtures.share(0.3)
	grants.of(shared).resource == "" with input.workload as fixtures.share(0.3)
	grants.of(shared).milli == 110 with input.workload as fixtures.memory(8400)
	not grants.of(shared) with input.workload as fixtures.memory(81921)
	not grants.of(shared) with input.workload as fixtures.slices(1, "3g.20gb")
}
