# Selects the node pools of a pod.
package sluice.lib.pools

import data.sluice.lib.grants
import data.sluice.lib.kai
import data.sluice.lib.kueue
import data.sluice.lib.quotas
import data.sluice.lib.request
import data.sluice.lib.shares

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

# preferred is the first selected pool; undefined if no candidate is usable.
preferred := selected[0]

# scheduling_gates are the names of the gates that the scheduler of the preferred pool sets
# and removes. Kueue's webhook sets both on each pod that it queues by itself, and its start
# of the pod removes both (pkg/controller/jobs/pod in Kueue).
default scheduling_gates := set()

scheduling_gates := {"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"} if {
	preferred.scheduler == "kueue"
	not kueue.suspended_by_owner
}

# selected are the pools in which the pod can run: the first usable one, and the pools
# directly after it that resemble it and that the scheduler can tell apart. Kueue chooses
# the pool after the pod is charged, so a pod that cannot be preempted is held to the first
# whose guarantee holds it.
selected := [guaranteeing[0]] if {
	usable[0].scheduler == "kueue"
	request.includes_gpu
	not request.preemptible
	guaranteeing[0]
}

else := alike

# guaranteeing are the pools whose guarantee holds the pod, by the project's spec alone:
# every call finds the same.
guaranteeing := [pool |
	some pool in alike
	input.workload.devices * grants.from_pool(pool).milli <= quotas.milli(pool.guaranteed)
	not excluded_by_author(pool)
]

# excluded_by_author: the author's node selector excludes the nodes of the pool.
excluded_by_author(pool) if {
	some key, value in pool.nodeSelector
	input.object.spec.nodeSelector[key] != value
}

# alike are the first usable pool, and those directly after it that resemble it.
alike := array.slice(usable, 0, min(selection_ends))

# selection_ends are the indexes at which the selection ends, at the latest.
selection_ends contains count(usable)

selection_ends contains 1 if not scheduler_selects

selection_ends contains index if {
	scheduler_selects
	some index, pool in usable
	index > 0
	difference(pool)
}

# A node requirement for each label keeps the pod in its pools. If the pools differed
# in more than one label, the requirements would match other pools as well.
selection_ends contains index if {
	scheduler_selects
	some index, _ in usable
	leading := array.slice(usable, 0, index + 1)
	count({key | some key, value in usable[0].nodeSelector; some pool in leading; pool.nodeSelector[key] != value}) > 1
}

# KAI distinguishes node pools only by its own label.
selection_ends contains index if {
	usable[0].scheduler == "kai"
	some index, pool in usable
	some former in array.slice(usable, 0, index)
	kai.shard_name(former) == kai.shard_name(pool)
}

# scheduler_selects: the scheduler can select one of several pools.
scheduler_selects if usable[0].scheduler in {"kueue", "kai"}

# difference returns in what a pool does not resemble the first usable one. It is undefined
# for a pool that resembles it.
difference(pool) := sprintf("its scheduler is %s", [pool.scheduler]) if pool.scheduler != usable[0].scheduler

else := sprintf("its sharing is %s", [pool.sharing]) if pool.sharing != usable[0].sharing

else := "its nodeSelector has other keys" if object.keys(pool.nodeSelector) != object.keys(usable[0].nodeSelector)

else := "it cannot grant the request" if not grants.from_pool(pool)

else := sprintf("it grants %s", [grants.from_pool(pool).singular]) if {
	grants.from_pool(pool).resource != grants.from_pool(usable[0]).resource
}

else := sprintf("it refuses the memory limit: %s", [shares.burst_refusal(pool)]) if shares.burst_refusal(pool)

# unused are the candidates in which no such pod can run, each with the reason.
unused := [{"name": pool.name, "reason": unused_reason(pool)} |
	names := {pool.name | some pool in alike}
	some pool in candidates
	not pool.name in names
]

unused_reason(pool) := "it accepts no pods" if pool.unsupported != ""

else := sprintf("%s uses one pool for each pod", [usable[0].scheduler]) if not scheduler_selects

else := difference(pool) if difference(pool)

else := sprintf("it follows %s", [first_unused]) if pool.name != first_unused

else := "KAI-Scheduler cannot tell its nodes apart from those of another" if {
	usable[0].scheduler == "kai"
	kai.shard_name(pool) in {kai.shard_name(other) | some other in alike}
}

else := "its nodeSelector differs in more than one label"

# first_unused is the usable pool at which the selection ends.
first_unused := usable[count(alike)].name

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
