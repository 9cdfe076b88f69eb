# The keys and names of KAI-Scheduler. Some of them depend on its installation.
package sluice.lib.kai

queue_key(pool) := setting(pool, "queueLabelKey")

shard_key(pool) := setting(pool, "nodePoolLabelKey")

scheduler(pool) := setting(pool, "schedulerName")

setting(pool, name) := value if {
	value := pool.settings[name]
	value != ""
} else := usual[name]

usual := {
	"queueLabelKey": "kai.scheduler/queue",
	"nodePoolLabelKey": "kai.scheduler/node-pool",
	"schedulerName": "kai-scheduler",
}

# shard is KAI's name of a node pool; each shard has its own scheduler. It is undefined
# for nodes without a shard.
shard(pool) := pool.nodeSelector[shard_key(pool)]

shard_labels(pool) := {shard_key(pool): shard(pool)} if shard(pool)

else := {}

shard_name(pool) := shard(pool) if shard(pool)

else := "default"

# queue is the name of a project's queue in a pool, and department_queue the name of
# its parent. A prefix distinguishes a project and a department of the same name.
queue(project, pool) := sprintf("%s.%s", [project, pool.name])

department_queue(department, pool) := sprintf("department.%s.%s", [department, pool.name])

# slices is the number of units that KAI counts for one GPU: its compute slices with
# MIG, and 1 without MIG.
slices(pool) := max(computes) if {
	pool.sharing == "MIG"
	computes := {profile.compute | some profile in pool.products[_].profiles}
	count(computes) > 0
} else := 7 if {
	pool.sharing == "MIG"
} else := 1

# share is the part of a GPU for an amount of memory, in thousandths. KAI rounds it up
# to hundredths. It is undefined if no GPU model has so much memory.
share(pool, memory_mib) := max(shares) if {
	shares := {part |
		some board in pool.products
		board.memoryMiB >= memory_mib
		part := ceil((memory_mib * 100) / board.memoryMiB) * 10
	}
	count(shares) > 0
}

# writes_devices: KAI's webhook added this variable or source to a container with a
# share. KAI's binder writes the GPU to the ConfigMap; an admission policy denies
# ConfigMaps with such names from other users.
writes_devices(reference) if regex.match(`^.+-shared-gpu-i?[0-9]+(-evar)?$`, reference.name)
