package sluice.lib.held_test

import data.fixtures
import data.sluice.lib.held

worth(pool, resources) := milli if {
	milli := held.milli with input as fixtures.asked(fixtures.gpus(1), [pool])
		with input.workload.resources as resources
}

test_worth if {
	worth(fixtures.whole, {"nvidia.com/gpu": 2}) == 2000
	worth(fixtures.cut, {"nvidia.com/mig-3g.20gb": 2}) == 1000
	worth(fixtures.taken, {"nvidia.com/gpu.shared": 3}) == 750
	worth(fixtures.whole, {"koordinator.sh/gpu": 50}) == 500
	worth(fixtures.whole, {}) == 0
}

test_what_the_pool_does_not_have_is_a_whole_gpu if {
	worth(fixtures.cut, {"nvidia.com/gpu": 1, "nvidia.com/mig-2g.10gb": 1}) == 2000
	worth(fixtures.taken, {"nvidia.com/gpu": 1}) == 1000
}

test_the_most_of_several_pools if {
	queued := [object.union(pool, {"scheduler": "kueue"}) | some pool in [fixtures.whole, object.union(fixtures.whole, {"name": "b"})]]
	held.milli == 1000 with input as fixtures.asked(fixtures.gpus(1), queued)
}
