# The denials of GPU requests that the project's node pools, or the preferred one,
# cannot grant. Each names an alternative. A GPU pod without such a denial can be
# charged.
package sluice.lib.refusals

import data.sluice.lib.ask
import data.sluice.lib.boards
import data.sluice.lib.pools
import data.sluice.lib.words

complaints contains {"msg": msg, "fix": fix} if {
	ask.gpu
	pools.first
	not pools.granted
}

complaints contains {
	"msg": sprintf("project %s has no node pool, and so no GPUs", [input.project.name]),
	"fix": "ask an administrator of the department for a quota in a node pool",
} if {
	ask.gpu
	count(input.nodePools) == 0
}

complaints contains {
	"msg": sprintf("node pool %s is not one of project %s; it may use %s", [name, input.project.name, words.list(pools.allowed)]),
	"field": "metadata.annotations[sluice.dev/node-pools]",
	"fix": "name one of these, or leave the annotation out",
} if {
	ask.gpu
	count(input.nodePools) > 0
	some name in pools.unknown
}

complaints contains {
	"msg": sprintf("node pool %s takes no pods: %s", [pool.name, pool.unsupported]),
	"fix": fix_of_unsupported,
} if {
	ask.gpu
	count(pools.usable) == 0
	some pool in pools.candidates
}

fix_of_unsupported := sprintf("name another of the project's pools: %s", [words.list(others)]) if {
	count(others) > 0
} else := "ask the cluster administrators"

others := [pool.name | some pool in input.nodePools; pool.unsupported == ""]

msg := sprintf("the pod requests %s; node pool %s offers %s", [ask.said, pools.first.name, offer])

offer := "whole GPUs only" if pools.first.sharing == "None"

offer := sprintf("the MIG slices %s", [words.list(slices)]) if {
	pools.first.sharing == "MIG"
	count(slices) > 0
}

offer := "no MIG slices yet" if {
	pools.first.sharing == "MIG"
	count(slices) == 0
}

offer := sprintf("one replica per pod, which is %s", [words.gpus(boards.replica(pools.first).milli)]) if {
	pools.first.sharing in {"MPS", "TimeSlicing"}
}

offer := "no replicas yet" if {
	pools.first.sharing in {"MPS", "TimeSlicing"}
	not boards.replica(pools.first)
}

offer := sprintf("shares by %s, which this version of Sluice does not support", [pools.first.sharing]) if {
	pools.first.sharing == "HAMi"
}

offer := "whole GPUs, and shares of one" if pools.first.sharing == "KAI"

slices := [offered.name | some board in pools.first.products; some offered in board.profiles]

fix := sprintf("%s can give it: name it in the annotation sluice.dev/node-pools", [words.list(pools.giving)]) if {
	count(pools.giving) == 1
} else := sprintf("%s can give it: name one in the annotation sluice.dev/node-pools", [words.list(pools.giving)]) if {
	count(pools.giving) > 1
} else := instead[pools.first.sharing]

instead := {
	"None": "request whole GPUs as nvidia.com/gpu in a container's limits",
	"MIG": "request one of these slices, or with the annotation sluice.dev/gpu a share that fits in one",
	"MPS": "request at most one replica with the annotation sluice.dev/gpu",
	"TimeSlicing": "request at most one replica with the annotation sluice.dev/gpu",
	"KAI": "request a share with the annotation sluice.dev/gpu, or no more memory than one GPU has",
	"HAMi": "ask the cluster administrators for a pool with whole GPUs or MIG slices",
}
