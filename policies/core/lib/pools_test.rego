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
	pools.unused == [{"name": "mig", "reason": "kube-scheduler uses one pool for each pod"}] with input as pod_input
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

unused_reasons(pools_of_project) := {pool.name: pool.reason |
	some pool in pools.unused with input as fixtures.input_for(fixtures.gpus(1), pools_of_project)
}

test_reasons_of_unused_pools if {
	a := labeled("a", {"zone": "1", "disk": "fast"})
	unused_reasons([
		a,
		object.union(labeled("b", {"zone": "2", "disk": "fast"}), {"unsupported": "it has no nodes"}),
		labeled("c", {"zone": "2", "disk": "slow"}),
		labeled("d", {"zone": "2", "disk": "fast"}),
		labeled("e", {"rack": "1"}),
		object.union(a, {"name": "f", "sharing": "TimeSlicing"}),
		object.union(a, {"name": "g", "scheduler": "kai"}),
	]) == {
		"b": "it accepts no pods",
		"c": "its nodeSelector differs in more than one label",
		"d": "it follows c",
		"e": "its nodeSelector has other keys",
		"f": "its sharing is TimeSlicing",
		"g": "its scheduler is kai",
	}
	cut := object.union(fixtures.mig, {"scheduler": "kai", "products": []})
	unused_reasons([object.union(fixtures.mig, {"scheduler": "kai"}), object.union(cut, {"name": "other"})]) == {"other": "it cannot grant the request"}
}

# KAI-Scheduler 0.17.0 distinguishes nodes by its own label only.
test_kai_pools_of_one_shard if {
	on_kai := [object.union(labeled(name, {"kai.scheduler/node-pool": shard}), {"scheduler": "kai"}) |
		some [name, shard] in [["a", "1"], ["b", "2"], ["c", "1"], ["d", "3"]]
	]
	names == ["a", "b"] with input as fixtures.input_for(fixtures.gpus(1), on_kai)
	unused_reasons(on_kai) == {"c": "KAI-Scheduler cannot tell its nodes apart from those of another", "d": "it follows c"}
}

test_charge if {
	pools.charge == 2000 with input as fixtures.input_for(fixtures.gpus(2), all)
	not pools.charge with input as fixtures.input_for(fixtures.share(0.5), all)
}

test_pools_differ_in_burst if {
	shared := object.remove(fixtures.pool("shared", "KAI", [{"memoryMiB": 81920, "profiles": []}]), ["nodeSelector"])
	bursting := [object.union(shared, {"name": name, "scheduler": "kai", "nodeSelector": {"kai.scheduler/node-pool": name}, "burst": burst}) |
		some [name, burst] in [["a", "Allow"], ["b", "Allow"], ["c", "Refuse"]]
	]
	workload := object.union(fixtures.memory(8192), {"memoryLimitMiB": 16384})
	names == ["a", "b"] with input as fixtures.input_for(workload, bursting)
	pools.unused == [{"name": "c", "reason": "it refuses the memory limit: its spec.burst is Refuse"}] with input as fixtures.input_for(workload, bursting)
	names == ["a", "b", "c"] with input as fixtures.input_for(fixtures.memory(8192), bursting)
}

guaranteed_pool(name, guaranteed) := object.union(labeled(name, {"pool": name}), {"guaranteed": guaranteed})

three := [guaranteed_pool("a", 0), guaranteed_pool("b", 1), guaranteed_pool("c", 2)]

interactive(gpus) := object.union(fixtures.gpus(gpus), {"type": "interactive"})

# Pods that cannot be preempted are held to the first pool of Kueue whose guarantee holds
# them; others may run in each.
test_guarantee_selects_pool if {
	names == ["b"] with input as fixtures.input_for(interactive(1), three)
	names == ["c"] with input as fixtures.input_for(interactive(2), three)
	names == ["a", "b", "c"] with input as fixtures.input_for(interactive(3), three)
	names == ["a", "b", "c"] with input as fixtures.input_for(fixtures.gpus(1), three)
	named := fixtures.input_for(object.union(interactive(1), {"nodePools": ["c", "b"]}), three)
	names == ["c"] with input as named
	pools.unused == [] with input as named
	names == ["c"] with input as object.union(fixtures.input_for(interactive(1), three), {"object": {"spec": {"nodeSelector": {"pool": "c"}}}})
}
