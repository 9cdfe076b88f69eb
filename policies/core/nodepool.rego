# Selects the node pools of a GPU pod: the pools that its author named, or else all
# pools of the project in the order of its spec.
package core.nodepool

import data.sluice.lib.ask
import data.sluice.lib.pools
import data.sluice.lib.words

overrides.metadata.labels["sluice.dev/node-pool"] := pools.first.name if ask.gpu

remove contains ["metadata", "labels", "sluice.dev/node-pool"] if not ask.gpu

append contains {"path": ["spec", "tolerations"], "value": toleration} if {
	ask.gpu
	some pool in pools.chosen
	some toleration in pool.tolerations
}

# A taint keeps pods off a node while Sluice repartitions its GPUs. This rule removes
# tolerations of that taint. It also removes tolerations without a key, which
# tolerate every taint, unless they are the pool's own.
overrides.spec.tolerations := [toleration | some toleration in tolerations; not passing(toleration)] if {
	ask.gpu
	some toleration in tolerations
	passing(toleration)
}

tolerations := input.object.spec.tolerations

passing(toleration) if startswith(object.get(toleration, "key", ""), "sluice.dev/")

passing(toleration) if {
	object.get(toleration, "key", "") == ""
	object.get(toleration, "effect", "") in {"", "NoSchedule"}
	every pool in pools.chosen {
		not toleration in pool.tolerations
	}
}

warn contains {
	"msg": sprintf("the pod goes to %s; of the pools that it names, %s not used: %s", [
		words.list([pool.name | some pool in pools.chosen]), be, words.list(pools.dropped),
	]),
	"field": "metadata.annotations[sluice.dev/node-pools]",
	"fix": "several pools need a scheduler that can choose among them, and the same sharing of GPUs",
} if {
	ask.gpu
	count(input.workload.nodePools) > 1
	count(pools.usable) > 0
	be := {true: "one is", false: "some are"}[count(pools.dropped) == 1]
	count(pools.dropped) > 0
}
