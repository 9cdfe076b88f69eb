package sluice.lib.boards_test

import data.fixtures
import data.sluice.lib.boards

test_smallest_that_has_enough if {
	boards.smallest(fixtures.cut, 100, 0).name == "1g.5gb"
	boards.smallest(fixtures.cut, 126, 0).name == "3g.20gb"
	boards.smallest(fixtures.cut, 0, 20481).name == "7g.40gb"
	not boards.smallest(fixtures.cut, 0, 50000)
}

test_boards_of_two_kinds_give_the_least_and_charge_the_most if {
	small := fixtures.profile("1g.10gb", 1, 10240, 0.125)
	large := fixtures.profile("1g.10gb", 1, 10240, 0.25)
	mixed := fixtures.pool("mixed", "MIG", [{"profiles": [small]}, {"profiles": [large]}])
	boards.smallest(mixed, 125, 0).milli == 250
	not boards.smallest(mixed, 250, 0)
}

test_replica if {
	boards.replica(fixtures.taken) == {"resource": "nvidia.com/gpu.shared", "milli": 250, "memoryMiB": 3840}
	not boards.replica(fixtures.whole)
	not boards.replica(fixtures.cut)
}
