# How KAI-Scheduler is spoken to: some of its keys are chosen where it is
# installed.
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

# shard is which of KAI's own node pools a pool is, each with a scheduler of its
# own; undefined where it is of the nodes that are in none.
shard(pool) := pool.nodeSelector[shard_key(pool)]

shard_labels(pool) := {shard_key(pool): shard(pool)} if shard(pool)

else := {}

shard_name(pool) := shard(pool) if shard(pool)

else := "default"

# queue is the name of a project's queue in a pool, and department_queue that of a
# department's above it: a project may be called as a department is.
queue(project, pool) := sprintf("%s.%s", [project, pool.name])

department_queue(department, pool) := sprintf("department.%s.%s", [department, pool.name])

# slices is into how many parts of its compute a GPU is cut, which is what KAI
# counts of MIG; everywhere else it counts GPUs.
slices(pool) := max(computes) if {
	pool.sharing == "MIG"
	computes := {profile.compute | some profile in pool.products[_].profiles}
	count(computes) > 0
} else := 7 if {
	pool.sharing == "MIG"
} else := 1

# share is how many thousandths of a GPU some memory is, which KAI rounds up to
# hundredths; undefined where no board has it.
share(pool, memory_mib) := max(shares) if {
	shares := {part |
		some board in pool.products
		board.memoryMiB >= memory_mib
		part := ceil((memory_mib * 100) / board.memoryMiB) * 10
	}
	count(shares) > 0
}

# writes_devices: a variable or a source of variables is what KAI's own webhook put
# into a container with a share, by which its binder says which GPU that is. Nobody
# else may write a ConfigMap of such a name.
writes_devices(reference) if regex.match(`^.+-shared-gpu-i?[0-9]+(-evar)?$`, reference.name)
