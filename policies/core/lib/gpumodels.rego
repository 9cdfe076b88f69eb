# The MIG profiles and replicas of a pool's GPU models. If several models offer the
# same profile, a pod can get it on any of them. The profile can be a different part of
# each model: Sluice guarantees the smallest part and charges the largest.
package sluice.lib.gpumodels

import data.sluice.lib.quotas

# profile returns the MIG profile with this name; undefined if no model has it. milli is
# the charge of one slice. minMilli is the smallest part of a GPU that the slice can be.
# Both are in thousandths of a GPU.
profile(pool, name) := {
	"name": name,
	"resource": matching[0].resource,
	"plain": matching[0].plain,
	"memoryMiB": matching[0].memoryMiB,
	"compute": matching[0].compute,
	"milli": max(charges),
	"minMilli": min(charges),
} if {
	matching := [offered | some offered in pool.products[_].profiles; offered.name == name]
	charges := [quotas.milli(offered.quotaCharge) | some offered in matching]
}

# profiles returns the profiles of a pool, each once, sorted by name.
profiles(pool) := [profile(pool, name) | some name in {offered.name | some offered in pool.products[_].profiles}]

# smallest_profile returns the smallest plain profile with at least these thousandths of
# a GPU and this memory; undefined if there is none.
smallest_profile(pool, milli, memory_mib) := profile(pool, min(sufficient)[3]) if {
	sufficient := {[offered.milli, offered.memoryMiB, offered.compute, offered.name] |
		some offered in profiles(pool)
		offered.plain
		offered.minMilli >= milli
		offered.memoryMiB >= memory_mib
	}
}

# usable_memory returns the memory of a GPU that the driver leaves to programs, in MiB.
usable_memory(pool, model) := floor((model.memoryMiB * (100 - pool.driverReservePercent)) / 100)

# replica returns one replica of the device plugin; undefined without replicas. The
# amounts are rounded down, so that all replicas of a GPU fit in it.
replica(pool) := {
	"resource": resource,
	"milli": floor(1000 / min(replicas)),
	"memoryMiB": min([floor(usable_memory(pool, model) / model.replicas) | some model in models]),
} if {
	resource := [model.replicaResource | some model in pool.products; model.replicas > 1][0]
	models := [model | some model in pool.products; model.replicas > 1; model.replicaResource == resource]
	replicas := [model.replicas | some model in models]
}
