package sluice.lib.pools_test

import data.fixtures
import data.sluice.lib.pools

all := [fixtures.whole, fixtures.cut, fixtures.taken]

names := [pool.name | some pool in pools.chosen]

test_the_first_of_the_project if {
	names == ["whole"] with input as fixtures.asked(fixtures.gpus(1), all)
}

test_the_first_that_the_author_names if {
	wish := object.union(fixtures.gpus(1), {"nodePools": ["none", "taken", "cut"]})
	asked := fixtures.asked(wish, all)
	names == ["taken"] with input as asked
	pools.unknown == ["none"] with input as asked
	pools.dropped == ["cut"] with input as asked
	pools.giving == ["whole", "cut"] with input as asked
}

test_what_is_unsupported_is_passed_over if {
	broken := object.union(fixtures.whole, {"unsupported": "no nodes"})
	names == ["cut"] with input as fixtures.asked(fixtures.gpus(1), [broken, fixtures.cut])
	not pools.first with input as fixtures.asked(fixtures.gpus(1), [broken])
}

test_several_that_are_alike if {
	queued := [object.union(pool, {"scheduler": "kueue", "name": name}) |
		some [name, pool] in [["a", fixtures.whole], ["b", fixtures.whole], ["c", fixtures.cut], ["d", fixtures.whole]]
	]
	names == ["a", "b"] with input as fixtures.asked(fixtures.gpus(1), queued)
}

labeled(name, labels) := object.union(object.remove(fixtures.whole, ["nodeSelector"]), {"scheduler": "kueue", "name": name, "nodeSelector": labels})

test_several_that_can_be_told_from_others_by_one_label if {
	a := labeled("a", {"zone": "1", "disk": "fast"})
	b := labeled("b", {"zone": "2", "disk": "fast"})
	names == ["a", "b"] with input as fixtures.asked(fixtures.gpus(1), [a, b, labeled("c", {"zone": "2", "disk": "slow"})])
	names == ["a"] with input as fixtures.asked(fixtures.gpus(1), [a, labeled("c", {"zone": "2", "disk": "slow"}), b])
	names == ["a"] with input as fixtures.asked(fixtures.gpus(1), [a, labeled("c", {"rack": "1", "disk": "fast"})])
	names == ["a", "b"] with input as fixtures.asked(fixtures.gpus(1), [a, b, labeled("c", {"disk": "fast"})])
}

test_charge if {
	pools.charge == 2000 with input as fixtures.asked(fixtures.gpus(2), all)
	not pools.charge with input as fixtures.asked(fixtures.share(0.5), all)
}
