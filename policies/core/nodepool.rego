# Selects the node pools of a GPU pod: the pools that its author named, or else all
# pools of the project in the order of its spec. Keeps other pods off the pools that
# refuse them.
package core.nodepool

import data.sluice.lib.format
import data.sluice.lib.pools
import data.sluice.lib.request

overrides.metadata.labels["sluice.dev/node-pool"] := pools.preferred.name if request.includes_gpu

remove contains ["metadata", "labels", "sluice.dev/node-pool"] if not request.includes_gpu

append contains {"path": ["spec", "tolerations"], "value": toleration} if {
	request.includes_gpu
	some pool in pools.selected
	some toleration in pool.tolerations
}

# A taint keeps pods off a node while Sluice repartitions its GPUs. This rule removes
# tolerations of that taint. It also removes tolerations without a key, which
# tolerate every taint, unless they are the pool's own.
overrides.spec.tolerations := [toleration | some toleration in tolerations; not bypasses_taints(toleration)] if {
	request.includes_gpu
	some toleration in tolerations
	bypasses_taints(toleration)
}

tolerations := input.object.spec.tolerations

# bypasses_taints: the toleration tolerates the taints that Sluice sets.
bypasses_taints(toleration) if startswith(object.get(toleration, "key", ""), "sluice.dev/")

bypasses_taints(toleration) if {
	object.get(toleration, "key", "") == ""
	object.get(toleration, "effect", "") in {"", "NoSchedule"}
	every pool in pools.selected {
		not toleration in pool.tolerations
	}
}

# A DaemonSet's pod belongs to its node.
nodes contains {"key": label.key, "operator": "NotIn", "values": values} if {
	not request.includes_gpu
	not request.from_daemon_set
	some label in input.project.refusedNodes
	values := sort({other.value | some other in input.project.refusedNodes; other.key == label.key})
}

deny contains {
	"msg": sprintf("the nodes with the label %s=%s refuse pods without GPUs", [label.key, label.value]),
	"field": sprintf("spec.nodeSelector[%s]", [label.key]),
	"fix": "select other nodes, or request a GPU in a container's limits",
} if {
	not request.includes_gpu
	not request.from_daemon_set
	some label in input.project.refusedNodes
	input.object.spec.nodeSelector[label.key] == label.value
}

# No node of the pool has the label, so the pod would wait forever.
deny contains {
	"msg": sprintf("no node of node pool %s has the label %s=%s", [pools.preferred.name, key, value]),
	"field": sprintf("spec.nodeSelector[%s]", [key]),
	"fix": sprintf("%s; leave the selector out, since Sluice selects the nodes of the pool", [other_pool_fix(key, value)]),
} if {
	request.includes_gpu
	some key, value in input.object.spec.nodeSelector
	labels := {pool.nodeSelector[key] | some pool in pools.selected}
	count(labels) > 0
	not value in labels
}

# other_pool_fix names the pool that the author probably means.
other_pool_fix(key, value) := sprintf("name node pool %s in the annotation sluice.dev/node-pools", [meant[0]]) if {
	meant := [pool.name | some pool in input.nodePools; pool.nodeSelector[key] == value]
	count(meant) > 0
} else := sprintf("the project can use node pool %s", [format.list(pools.project_names)])

# Products are known once the pool's nodes are.
warn contains {
	"msg": sprintf("no GPU of node pool %s is a %s; it has %s: the pod can wait forever", [pools.preferred.name, value, format.list(products)]),
	"field": "spec.nodeSelector[nvidia.com/gpu.product]",
	"fix": "leave the selector out, or name a node pool with this GPU in the annotation sluice.dev/node-pools",
} if {
	request.includes_gpu
	value := input.object.spec.nodeSelector["nvidia.com/gpu.product"]
	products := [product.name | some pool in pools.selected; some product in pool.products]
	count(products) > 0
	not strings.any_prefix_match(value, products)
}

warn contains {
	"msg": sprintf("the pod can run in %s; of the pools that it names, %s not used: %s", [
		format.list([pool.name | some pool in pools.selected]), verb, format.list(unused),
	]),
	"field": "metadata.annotations[sluice.dev/node-pools]",
	"fix": "several pools need a scheduler that can choose among them (kueue or kai), the same sharing of GPUs and the same keys in nodeSelector",
} if {
	request.includes_gpu
	count(input.workload.nodePools) > 1
	count(pools.usable) > 0
	unused := [sprintf("%s (%s)", [pool.name, pool.reason]) | some pool in pools.unused]
	verb := {true: "one is", false: "some are"}[count(unused) == 1]
	count(unused) > 0
}
