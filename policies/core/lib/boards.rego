# The MIG profiles and replicas of a pool's GPU models. If several models offer the
# same profile, a pod can get it on any of them. The profile can be a different part of
# each model: Sluice guarantees the smallest part and charges the largest.
package sluice.lib.boards

import data.sluice.lib.words

# profile is the MIG profile with this name; undefined if no model has it. milli is the
# charge of one slice. sure is the smallest part of a GPU that the slice can be. Both
# are in thousandths of a GPU.
profile(pool, name) := {
	"name": name,
	"resource": same[0].resource,
	"plain": same[0].plain,
	"memoryMiB": same[0].memoryMiB,
	"compute": same[0].compute,
	"milli": max(prices),
	"sure": min(prices),
} if {
	same := [offered | some offered in pool.products[_].profiles; offered.name == name]
	prices := [words.milli(offered.price) | some offered in same]
}

# profiles are the profiles of a pool, each once, sorted by name.
profiles(pool) := [profile(pool, name) | some name in {offered.name | some offered in pool.products[_].profiles}]

# smallest is the smallest plain profile with at least these thousandths of a GPU and
# this memory; undefined if there is none.
smallest(pool, milli, memory_mib) := profile(pool, min(enough)[3]) if {
	enough := {[offered.milli, offered.memoryMiB, offered.compute, offered.name] |
		some offered in profiles(pool)
		offered.plain
		offered.sure >= milli
		offered.memoryMiB >= memory_mib
	}
}

# replica is one replica of the device plugin; undefined without replicas. The amounts
# are rounded down, so that all replicas of a GPU fit in it.
replica(pool) := {
	"resource": resource,
	"milli": floor(1000 / min(replicas)),
	"memoryMiB": min([floor(board.memoryMiB / board.replicas) | some board in divided]),
} if {
	resource := [board.replicaResource | some board in pool.products; board.replicas > 1][0]
	divided := [board | some board in pool.products; board.replicas > 1; board.replicaResource == resource]
	replicas := [board.replicas | some board in divided]
}
