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
