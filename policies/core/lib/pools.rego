# Selects the node pools of a pod.
package sluice.lib.pools

import data.sluice.lib.grants

# project_names are the names of the project's pools, in the order of its spec.
project_names := [pool.name | some pool in input.nodePools]

# unknown_names are the named pools that the project does not have.
unknown_names := [name | some name in input.workload.nodePools; not name in project_names]

# candidates are the pools that the author named, or else all pools of the project.
candidates := input.nodePools if count(input.workload.nodePools) == 0

else := [pool |
	some name in input.workload.nodePools
	some pool in input.nodePools
	pool.name == name
]

# usable are the candidates that accept pods.
usable := [pool | some pool in candidates; pool.unsupported == ""]

# preferred is the first usable pool; undefined if no candidate is usable.
preferred := usable[0]

# selected are the pools in which the pod can run: the preferred one, and the pools
# directly after it with the same scheduler, sharing and resource.
selected := array.slice(usable, 0, min(selection_ends))

# selection_ends are the indexes at which the selection ends, at the latest.
selection_ends contains count(usable)

selection_ends contains 1 if not scheduler_selects

selection_ends contains index if {
	scheduler_selects
	some index, pool in usable
	index > 0
	not resembles_preferred(pool)
}

# A node requirement for each label keeps the pod in its pools. If the pools differed
# in more than one label, the requirements would match other pools as well.
selection_ends contains index if {
	scheduler_selects
	some index, _ in usable
	leading := array.slice(usable, 0, index + 1)
	count({key | some key, value in preferred.nodeSelector; some pool in leading; pool.nodeSelector[key] != value}) > 1
}

# scheduler_selects: the scheduler can select one of several pools.
scheduler_selects if preferred.scheduler in {"kueue", "kai"}

resembles_preferred(pool) if {
	pool.scheduler == preferred.scheduler
	pool.sharing == preferred.sharing
	object.keys(pool.nodeSelector) == object.keys(preferred.nodeSelector)
	grants.from_pool(pool).resource == grants.from_pool(preferred).resource
}

# unused_names are the names of the candidates that are not selected.
unused_names := [pool.name |
	names := {pool.name | some pool in selected}
	some pool in candidates
	not pool.name in names
]

# grant is the grant of the preferred pool; undefined if it cannot grant the request.
grant := grants.from_pool(preferred)

# grant_description describes the granted devices: "a slice 1g.5gb", "2 slices 1g.5gb".
grant_description := grant.singular if input.workload.devices == 1

else := sprintf("%d %s", [input.workload.devices, grant.plural])

# charge is the GPU quota that the pod uses, in thousandths of a GPU.
charge := input.workload.devices * max([grants.from_pool(pool).milli | some pool in selected])

# granting_names are the names of the project's pools that can grant the request.
granting_names := [pool.name |
	some pool in input.nodePools
	pool.unsupported == ""
	grants.from_pool(pool)
]
