package sluice.lib.gpuresources_test

import data.fixtures
import data.sluice.lib.gpuresources

value(pool, resources) := milli if {
	milli := gpuresources.milli with input as fixtures.input_for(fixtures.gpus(1), [pool])
		with input.workload.resources as resources
}

test_milli if {
	value(fixtures.whole, {"nvidia.com/gpu": 2}) == 2000
	value(fixtures.mig, {"nvidia.com/mig-3g.20gb": 2}) == 1000
	value(fixtures.time_sliced, {"nvidia.com/gpu.shared": 3}) == 750
	value(fixtures.whole, {"koordinator.sh/gpu": 50}) == 500
	value(fixtures.whole, {}) == 0
	value(fixtures.named({"nvidia.com/pair": 2}), {"nvidia.com/pair": 3}) == 6000
}

test_unknown_resource_is_whole_gpu if {
	value(fixtures.mig, {"nvidia.com/gpu": 1, "nvidia.com/mig-2g.10gb": 1}) == 2000
	value(fixtures.time_sliced, {"nvidia.com/gpu": 1}) == 1000
}

test_highest_value_of_several_pools if {
	queued := [object.union(pool, {"scheduler": "kueue"}) | some pool in [fixtures.whole, object.union(fixtures.whole, {"name": "b"})]]
	gpuresources.milli == 1000 with input as fixtures.input_for(fixtures.gpus(1), queued)
}
