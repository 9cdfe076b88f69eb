# The value of the GPU resources of a pod. It does not depend on the policy that
# granted them.
package sluice.lib.held

import data.sluice.lib.boards
import data.sluice.lib.pools

# milli is the value in thousandths of a GPU, in the pool with the highest value.
milli := max([in_pool(pool) | some pool in pools.chosen])

in_pool(pool) := sum([all |
	some name, amount in input.workload.resources
	all := amount * worth(pool, name)
])

# worth is the value of one unit of a resource. The value of an unknown resource is a
# whole GPU.
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
