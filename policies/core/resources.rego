# Denies a GPU pod more of a node's CPU, memory, ephemeral storage and huge pages than the
# share of its GPUs, times a factor of the node pool: other GPUs of the node would be idle
# for lack of them, or the scheduler would preempt other pods for them.
package core.resources

import data.sluice.lib.format
import data.sluice.lib.grants
import data.sluice.lib.pools
import data.sluice.lib.quotas
import data.sluice.lib.request

deny contains {
	"msg": sprintf("the pod requests %s %s; a pod with %s can request at most %s in node pool %s", [
		name, format.amount(name, amount), format.gpus(milli(pool)), format.amount(name, most), pool.name,
	]),
	"field": sprintf("spec.containers[*].resources.requests[%s]", [name]),
	"fix": sprintf("request at most %s in all containers together, or more of a GPU: the GPUs of a node share its %s", [format.amount(name, most), name]),
} if {
	request.includes_gpu
	some name, amount in input.workload.requests
	[most, at] := min(limits(name))
	amount > most
	most > 0
	pool := pools.selected[at]
}

deny contains {
	"msg": sprintf("the pod requests %s, which no node of node pool %s offers", [name, pool.name]),
	"field": sprintf("spec.containers[*].resources.requests[%s]", [name]),
	"fix": "remove the request",
} if {
	request.includes_gpu
	some name, _ in input.workload.requests
	[most, at] := min(limits(name))
	most == 0
	pool := pools.selected[at]
}

# limits returns what the pod may request of a resource in each selected pool that limits
# it, with the index of the pool. The scheduler may choose any of them.
limits(name) := {[most, at] |
	some at, pool in pools.selected
	factor := quotas.milli(pool.resourceFactors[class])
	factor > 0
	most := rounded(name, (least(pool, name) * (milli(pool) * factor)) / 1000000)
}

default class := "nonPreemptible"

class := "preemptible" if request.preemptible

# milli returns the part of a GPU that the pod gets in a pool, in thousandths.
milli(pool) := input.workload.devices * grants.from_pool(pool).milli

# rounded rounds down to what people write: thousandths of a CPU, and MiB.
rounded("cpu", amount) := floor(amount)

rounded(name, amount) := floor(amount / 1048576) * 1048576 if name != "cpu"

# least returns what is offered for each GPU by the node that offers least of a resource,
# among those that offer it; 0 without such a node.
default least(_, _) := 0

least(pool, name) := min([kind.perGPU[name] | some kind in suitable_kinds(pool)])

# suitable_kinds returns the kinds of nodes that could hold the pod, or else all. No node
# ever holds a pod for which there are none, until one is added.
suitable_kinds(pool) := kinds if {
	kinds := [kind | some kind in pool.nodeKinds; not unsuitable(pool, kind)]
	count(kinds) > 0
} else := pool.nodeKinds

unsuitable(pool, kind) if {
	kind.gpus > 0 # the nodes are known
	kind.gpus * 1000 < milli(pool)
}

unsuitable(pool, kind) if {
	pool.sharing == "MIG"
	kind.gpus > 0
	profile := grants.requested_profile(pool)
	not profile.name in {offered.name | some model in pool.products; model.name == kind.product; some offered in model.profiles}
}

unsuitable(pool, kind) if {
	some model in pool.products
	model.name == kind.product
	model.memoryMiB > 0
	model.memoryMiB < input.workload.memoryMiB
}

# Labels of shared GPUs have a suffix.
unsuitable(_, kind) if {
	product := input.object.spec.nodeSelector["nvidia.com/gpu.product"]
	not startswith(product, kind.product)
}
