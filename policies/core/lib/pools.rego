# Which node pools a pod goes to.
package sluice.lib.pools

import data.sluice.lib.grants

# allowed are the names of the project's pools, in its order.
allowed := [pool.name | some pool in input.nodePools]

# unknown are the pools that the author named and the project does not have.
unknown := [name | some name in input.workload.nodePools; not name in allowed]

# candidates are the pools that come into question: those that the author named,
# else all of the project's.
candidates := input.nodePools if count(input.workload.nodePools) == 0

else := [pool |
	some name in input.workload.nodePools
	some pool in input.nodePools
	pool.name == name
]

usable := [pool | some pool in candidates; pool.unsupported == ""]

# first is the pool that the pod goes to, if it can go to one only; undefined
# where it can go to none.
first := usable[0]

# chosen are all that the pod may go to: the leading ones that are as the first.
chosen := array.slice(usable, 0, min(ends))

ends contains count(usable)

ends contains 1 if not chooses

ends contains place if {
	chooses
	some place, pool in usable
	place > 0
	not as_first(pool)
}

# A pod is kept in its pools by a requirement for each label of their nodes. Where
# they differ in more than one of them, other pools would have all of these too.
ends contains place if {
	chooses
	some place, _ in usable
	together := array.slice(usable, 0, place + 1)
	count({key | some key, value in first.nodeSelector; some pool in together; pool.nodeSelector[key] != value}) > 1
}

# chooses: the scheduler can choose among pools.
chooses if first.scheduler in {"kueue", "kai"}

as_first(pool) if {
	pool.scheduler == first.scheduler
	pool.sharing == first.sharing
	object.keys(pool.nodeSelector) == object.keys(first.nodeSelector)
	grants.of(pool).resource == grants.of(first).resource
}

# dropped are the pools that come into question and are not chosen.
dropped := [pool.name |
	names := {pool.name | some pool in chosen}
	some pool in candidates
	not pool.name in names
]

# granted is what one device becomes; undefined where the first pool cannot give
# what is asked for.
granted := grants.of(first)

# given is that in words, for all devices: "a slice 1g.5gb", "2 slices 1g.5gb".
given := granted.name if input.workload.devices == 1

else := sprintf("%d %s", [input.workload.devices, granted.names])

# charge is what the pod is charged, in thousandths of a GPU.
charge := input.workload.devices * max([grants.of(pool).milli | some pool in chosen])

# giving are the names of the project's pools that could give what is asked for.
giving := [pool.name |
	some pool in input.nodePools
	pool.unsupported == ""
	grants.of(pool)
]
