# The value of the GPU resources that a pod requests. It does not depend on the policy
# that granted them.
package sluice.lib.gpuresources

import data.sluice.lib.gpumodels
import data.sluice.lib.pools
import data.sluice.lib.quotas

# milli is the value in thousandths of a GPU, in the selected pool with the highest
# value.
milli := max([milli_in_pool(pool) | some pool in pools.selected])

milli_in_pool(pool) := sum([value |
	some name, amount in input.workload.resources
	value := amount * unit_milli(pool, name)
])

# unit_milli returns the value of one unit of a resource. The value of a resource that
# the pool does not know is a whole GPU.
unit_milli(pool, name) := replica.milli if {
	pool.sharing in {"MPS", "TimeSlicing"}
	replica := gpumodels.replica(pool)
	replica.resource == name
} else := max(charges) if {
	charges := [profile.milli | some profile in gpumodels.profiles(pool); profile.resource == name]
	count(charges) > 0
} else := quotas.milli(named.gpus) if {
	some named in pool.resources
	named.name == name
} else := 10 if {
	name == "koordinator.sh/gpu"
} else := 1000
