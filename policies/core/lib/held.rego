# What the GPU resources that a pod has are worth, whoever gave it them and for
# whatever it asked.
package sluice.lib.held

import data.sluice.lib.boards
import data.sluice.lib.pools

# milli is that in thousandths of a GPU, in the pool where it is the most.
milli := max([in_pool(pool) | some pool in pools.chosen])

in_pool(pool) := sum([all |
	some name, amount in input.workload.resources
	all := amount * worth(pool, name)
])

# worth is that of one of a resource. Of what the pool is not known to have, it is
# a whole GPU.
worth(pool, name) := replica.milli if {
	pool.sharing in {"MPS", "TimeSlicing"}
	replica := boards.replica(pool)
	replica.resource == name
} else := max(prices) if {
	prices := [profile.milli | some profile in boards.profiles(pool); profile.resource == name]
	count(prices) > 0
} else := 10 if {
	name == "koordinator.sh/gpu"
} else := 1000
