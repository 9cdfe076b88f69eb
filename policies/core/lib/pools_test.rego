package sluice.lib.pools_test

import data.fixtures
import data.sluice.lib.pools

all := [fixtures.whole, fixtures.mig, fixtures.time_sliced]

names := [pool.name | some pool in pools.selected]

test_first_pool_of_project if {
	names == ["whole"] with input as fixtures.input_for(fixtures.gpus(1), all)
}

test_first_pool_of_author if {
	workload := object.union(fixtures.gpus(1), {"nodePools": ["none", "time-sliced", "mig"]})
	pod_input := fixtures.input_for(workload, all)
	names == ["time-sliced"] with input as pod_input
	pools.unknown_names == ["none"] with input as pod_input
	pools.unused_names == ["mig"] with input as pod_input
	pools.granting_names == ["whole", "mig"] with input as pod_input
}

test_unsupported_pools_are_skipped if {
	unsupported := object.union(fixtures.whole, {"unsupported": "no nodes"})
	names == ["mig"] with input as fixtures.input_for(fixtures.gpus(1), [unsupported, fixtures.mig])
	not pools.preferred with input as fixtures.input_for(fixtures.gpus(1), [unsupported])
}

test_selects_consecutive_equal_pools if {
	queued := [object.union(pool, {"scheduler": "kueue", "name": name}) |
		some [name, pool] in [["a", fixtures.whole], ["b", fixtures.whole], ["c", fixtures.mig], ["d", fixtures.whole]]
	]
	names == ["a", "b"] with input as fixtures.input_for(fixtures.gpus(1), queued)
}

labeled(name, labels) := object.union(object.remove(fixtures.whole, ["nodeSelector"]), {"scheduler": "kueue", "name": name, "nodeSelector": labels})

test_selected_pools_differ_in_one_label if {
	a := labeled("a", {"zone": "1", "disk": "fast"})
	b := labeled("b", {"zone": "2", "disk": "fast"})
	names == ["a", "b"] with input as fixtures.input_for(fixtures.gpus(1), [a, b, labeled("c", {"zone": "2", "disk": "slow"})])
	names == ["a"] with input as fixtures.input_for(fixtures.gpus(1), [a, labeled("c", {"zone": "2", "disk": "slow"}), b])
	names == ["a"] with input as fixtures.input_for(fixtures.gpus(1), [a, labeled("c", {"rack": "1", "disk": "fast"})])
	names == ["a", "b"] with input as fixtures.input_for(fixtures.gpus(1), [a, b, labeled("c", {"disk": "fast"})])
}

test_charge if {
	pools.charge == 2000 with input as fixtures.input_for(fixtures.gpus(2), all)
	not pools.charge with input as fixtures.input_for(fixtures.share(0.5), all)
}
