# How a pod is told that its pool cannot give what it asks for, and what can.
package sluice.lib.refusals

import data.sluice.lib.ask
import data.sluice.lib.boards
import data.sluice.lib.pools
import data.sluice.lib.words

msg := sprintf("the pod asks for %s; node pool %s gives %s", [ask.said, pools.first.name, offer])

offer := "whole GPUs only" if pools.first.sharing == "None"

offer := sprintf("the MIG slices %s", [words.list(slices)]) if {
	pools.first.sharing == "MIG"
	count(slices) > 0
}

offer := "no MIG slices yet" if {
	pools.first.sharing == "MIG"
	count(slices) == 0
}

offer := sprintf("a pod one replica, which is %s", [words.gpus(boards.replica(pools.first).milli)]) if {
	pools.first.sharing in {"MPS", "TimeSlicing"}
}

offer := "no replicas yet" if {
	pools.first.sharing in {"MPS", "TimeSlicing"}
	not boards.replica(pools.first)
}

offer := sprintf("shares by %s, which this version of Sluice does not support", [pools.first.sharing]) if {
	pools.first.sharing in {"KAI", "HAMi"}
}

slices := [offered.name | some board in pools.first.boards; some offered in board.profiles]

fix := sprintf("%s can give it: name it in the annotation sluice.dev/node-pools", [words.list(pools.giving)]) if {
	count(pools.giving) == 1
} else := sprintf("%s can give it: name one in the annotation sluice.dev/node-pools", [words.list(pools.giving)]) if {
	count(pools.giving) > 1
} else := instead[pools.first.sharing]

instead := {
	"None": "ask for whole GPUs, as nvidia.com/gpu in a container's limits",
	"MIG": "ask for one of these slices, or by the annotation sluice.dev/gpu for a share that fits in one",
	"MPS": "ask for no more than a replica, by the annotation sluice.dev/gpu",
	"TimeSlicing": "ask for no more than a replica, by the annotation sluice.dev/gpu",
	"KAI": "ask who runs the cluster for a pool that gives whole GPUs or MIG slices",
	"HAMi": "ask who runs the cluster for a pool that gives whole GPUs or MIG slices",
}
