# Where a GPU pod runs: in the pools that its author named, within the project's,
# else in any of the project's, in their order.
package core.nodepool

import data.sluice.lib.ask
import data.sluice.lib.pools
import data.sluice.lib.words

overrides.metadata.labels["sluice.dev/node-pool"] := pools.first.name if ask.gpu

remove contains ["metadata", "labels", "sluice.dev/node-pool"] if not ask.gpu

# Of several pools a requirement can only name the labels that all of them have:
# it never keeps the pod from one of them.
nodes contains {"key": key, "operator": "In", "values": sort(values)} if {
	ask.gpu
	some key, _ in pools.first.nodeSelector
	values := {pool.nodeSelector[key] | some pool in pools.chosen}
	every pool in pools.chosen {
		key in object.keys(pool.nodeSelector)
	}
}

append contains {"path": ["spec", "tolerations"], "value": toleration} if {
	ask.gpu
	some pool in pools.chosen
	some toleration in pool.tolerations
}

deny contains {
	"msg": sprintf("project %s has no node pool, and so no GPUs", [input.project.name]),
	"fix": "ask an administrator of the department for a quota in a node pool",
} if {
	ask.gpu
	count(input.nodePools) == 0
}

deny contains {
	"msg": sprintf("node pool %s is not one of project %s; it may use %s", [name, input.project.name, words.list(pools.allowed)]),
	"field": "metadata.annotations[sluice.dev/node-pools]",
	"fix": "name one of these, or leave the annotation out",
} if {
	ask.gpu
	count(input.nodePools) > 0
	some name in pools.unknown
}

deny contains {
	"msg": sprintf("node pool %s takes no pods: %s", [pool.name, pool.unsupported]),
	"fix": fix_of_unsupported,
} if {
	ask.gpu
	count(pools.usable) == 0
	some pool in pools.candidates
}

warn contains {
	"msg": sprintf("the pod goes to %s; %s of the pools that it names left out: %s", [
		words.list([pool.name | some pool in pools.chosen]), be, words.list(pools.dropped),
	]),
	"field": "metadata.annotations[sluice.dev/node-pools]",
	"fix": "pools go together where their scheduler can choose and they share GPUs in the same way",
} if {
	ask.gpu
	count(input.workload.nodePools) > 1
	count(pools.usable) > 0
	be := {true: "one is", false: "some are"}[count(pools.dropped) == 1]
	count(pools.dropped) > 0
}

fix_of_unsupported := sprintf("name another of the project's pools: %s", [words.list(others)]) if {
	count(others) > 0
} else := "ask who runs the cluster"

others := [pool.name | some pool in input.nodePools; pool.unsupported == ""]
