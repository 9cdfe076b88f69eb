# What the boards of a pool can be divided into. Where boards of several kinds
# offer one thing, a pod may get it of any of them: it is sure of the least, and
# is charged the most.
package sluice.lib.boards

import data.sluice.lib.words

# profile is the MIG profile of that name; undefined where no board has it. milli
# is what a slice is charged, sure what it is of a GPU at least; both in
# thousandths.
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

# profiles are all of a pool, each once, by name.
profiles(pool) := [profile(pool, name) | some name in {offered.name | some offered in pool.products[_].profiles}]

# smallest is the smallest plain profile that is at least so many thousandths of
# a GPU and has so much memory; undefined where there is none.
smallest(pool, milli, memory_mib) := profile(pool, min(enough)[3]) if {
	enough := {[offered.milli, offered.memoryMiB, offered.compute, offered.name] |
		some offered in profiles(pool)
		offered.plain
		offered.sure >= milli
		offered.memoryMiB >= memory_mib
	}
}

# replica is into what the device plugin divides the GPUs of a pool; undefined
# where it divides none. What is rounded off is nobody's, so that all replicas
# of a GPU fit in it.
replica(pool) := {
	"resource": resource,
	"milli": floor(1000 / min(replicas)),
	"memoryMiB": min([floor(board.memoryMiB / board.replicas) | some board in divided]),
} if {
	resource := [board.replicaResource | some board in pool.products; board.replicas > 1][0]
	divided := [board | some board in pool.products; board.replicas > 1; board.replicaResource == resource]
	replicas := [board.replicas | some board in divided]
}
