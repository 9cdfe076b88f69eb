# Selects the node pools of a pod.
package sluice.lib.pools

import data.sluice.lib.grants

# allowed are the names of the project's pools, in the order of its spec.
allowed := [pool.name | some pool in input.nodePools]

# unknown are the named pools that the project does not have.
unknown := [name | some name in input.workload.nodePools; not name in allowed]

# candidates are the pools that the author named, or else all pools of the project.
candidates := input.nodePools if count(input.workload.nodePools) == 0

else := [pool |
	some name in input.workload.nodePools
	some pool in input.nodePools
	pool.name == name
]

usable := [pool | some pool in candidates; pool.unsupported == ""]

# first is the preferred pool of the pod; undefined if no candidate is usable.
first := usable[0]

# chosen are the pools in which the pod may run: the first one, and the pools directly
# after it with the same scheduler, sharing and resource.
chosen := array.slice(usable, 0, min(ends))

ends contains count(usable)

ends contains 1 if not chooses

ends contains place if {
	chooses
	some place, pool in usable
	place > 0
	not as_first(pool)
}

# A node requirement for each label keeps the pod in its pools. If the pools differed
# in more than one label, the requirements would match other pools as well.
ends contains place if {
	chooses
	some place, _ in usable
	together := array.slice(usable, 0, place + 1)
	count({key | some key, value in first.nodeSelector; some pool in together; pool.nodeSelector[key] != value}) > 1
}

# chooses: the scheduler can choose among several pools.
chooses if first.scheduler in {"kueue", "kai"}

as_first(pool) if {
	pool.scheduler == first.scheduler
	pool.sharing == first.sharing
	object.keys(pool.nodeSelector) == object.keys(first.nodeSelector)
	grants.of(pool).resource == grants.of(first).resource
}

# dropped are the candidates that are not chosen.
dropped := [pool.name |
	names := {pool.name | some pool in chosen}
	some pool in candidates
	not pool.name in names
]

# granted is the resource for one device; undefined if the first pool cannot grant the
# request.
granted := grants.of(first)

# given describes the granted devices: "a slice 1g.5gb", "2 slices 1g.5gb".
given := granted.name if input.workload.devices == 1

else := sprintf("%d %s", [input.workload.devices, granted.names])

# charge is the GPU quota that the pod uses, in thousandths of a GPU.
charge := input.workload.devices * max([grants.of(pool).milli | some pool in chosen])

# giving are the names of the project's pools that can grant the request.
giving := [pool.name |
	some pool in input.nodePools
	pool.unsupported == ""
	grants.of(pool)
]
