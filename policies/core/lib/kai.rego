# The keys and names of KAI-Scheduler. Some of them depend on its installation.
package sluice.lib.kai

# queue_label_key returns the key of the label that selects a queue.
queue_label_key(pool) := setting(pool, "queueLabelKey")

shard_label_key(pool) := setting(pool, "nodePoolLabelKey")

scheduler_name(pool) := setting(pool, "schedulerName")

setting(pool, name) := value if {
	value := pool.settings[name]
	value != ""
} else := default_settings[name]

default_settings := {
	"queueLabelKey": "kai.scheduler/queue",
	"nodePoolLabelKey": "kai.scheduler/node-pool",
	"schedulerName": "kai-scheduler",
}

# shard returns KAI's name of a node pool; each shard has its own scheduler. It is
# undefined for nodes without a shard.
shard(pool) := pool.nodeSelector[shard_label_key(pool)]

shard_labels(pool) := {shard_label_key(pool): shard(pool)} if shard(pool)

else := {}

shard_name(pool) := shard(pool) if shard(pool)

else := "default"

# partition returns the value of the SchedulingShard of a pool; empty for nodes without a
# shard.
partition(pool) := shard(pool) if shard(pool)

else := ""

# marks_preempted_pods_setting is the argument of a shard's scheduler with which it marks
# the pods that it preempts. The node pool's status has its value under the name
# marks_preempted_pods_name.
marks_preempted_pods_setting(pool) := {
	"apiVersion": "kai.scheduler/v1",
	"kind": "SchedulingShard",
	"where": {"path": ["spec", "partitionLabelValue"], "is": partition(pool)},
	"path": ["spec", "args", "update-pod-eviction-condition"],
}

marks_preempted_pods_name := "updatePodEvictionCondition"

# leaves_preempted_pods_unmarked: a Job counts the pods that KAI-Scheduler preempts in the
# pool as failures.
leaves_preempted_pods_unmarked(pool) if {
	pool.scheduler == "kai"
	pool.settings[marks_preempted_pods_name] != "true"
}

# queue_name returns the name of a project's queue in a pool, and department_queue_name
# the name of its parent. A prefix distinguishes a project and a department of the same
# name.
queue_name(project, pool) := sprintf("%s.%s", [project, pool.name])

department_queue_name(department, pool) := sprintf("department.%s.%s", [department, pool.name])

# units_per_gpu returns the number of units that KAI counts for one GPU: its compute
# slices with MIG, and 1 without MIG.
units_per_gpu(pool) := max(compute_slices) if {
	pool.sharing == "MIG"
	compute_slices := {profile.compute | some profile in pool.products[_].profiles}
	count(compute_slices) > 0
} else := 7 if {
	pool.sharing == "MIG"
} else := 1

# share_milli returns the share of a GPU that KAI counts for a requested share, both in
# thousandths. KAI rounds to hundredths, and less than half of one counts as nothing, so
# pods get the next hundredth.
share_milli(milli) := ceil(milli / 10) * 10

# memory_milli returns the share of a GPU that KAI counts for this memory, in
# thousandths. It is undefined if no GPU model has so much memory.
memory_milli(pool, memory_mib) := max(shares) if {
	shares := {share |
		some memory in usable_memories(pool)
		memory_mib <= memory
		share := memory_hundredths((memory_mib * 100) / memory) * 10
	}
	count(shares) > 0
}

# memory_hundredths rounds a percentage up. KAI computes in binary fractions, in which
# some whole percentages are slightly more than themselves.
memory_hundredths(percentage) := percentage + 1 if percentage in {7, 14, 28, 55, 56}

else := ceil(percentage)

# largest_memory is the largest memory that a pod can request of one GPU of the pool, in
# MiB; undefined if the memory of no GPU is known.
largest_memory(pool) := max(usable_memories(pool))

# usable_memories are the memories of the pool's GPU models as KAI counts them: whole
# hundreds of MiB.
usable_memories(pool) := {memory |
	some model in pool.products
	memory := model.memoryMiB - (model.memoryMiB % 100)
	memory > 0
}

# is_device_reference: KAI's webhook added this variable or source to this container of the
# pod. It records the prefix of the names in an annotation, and the name ends with the
# container's index, so that no pod refers to the devices of another one. KAI's binder
# writes the GPU to the ConfigMap; an admission policy denies ConfigMaps with such names
# from other users.
is_device_reference(container, reference) if {
	prefix := input.object.metadata.annotations["runai/shared-gpu-configmap"]
	is_own_prefix(prefix)
	some list, mark in {"containers": "", "initContainers": "i"}
	some index, other in input.object.spec[list]
	other.name == container.name
	reference.name in {sprintf("%s-%s%d%s", [prefix, mark, index, suffix]) | some suffix in {"", "-evar"}}
}

# is_own_prefix: KAI's webhook can have generated the prefix for this pod, from the name of
# its first owner, of which it keeps about 33 characters. The name of a pod without an owner
# is not compared, since a policy that reads it is evaluated for each pod of a controller.
is_own_prefix(prefix) if {
	base := regex.find_all_string_submatch_n(`^(.*)-[a-z0-9]{7}-shared-gpu$`, prefix, 1)[0][1]
	is_base_of_owner(base)
}

is_base_of_owner(_) if not input.object.metadata.ownerReferences[0]

is_base_of_owner(base) if base == input.object.metadata.ownerReferences[0].name

is_base_of_owner(base) if {
	count(base) >= shortest_cut_name
	startswith(input.object.metadata.ownerReferences[0].name, base)
}

# shortest_cut_name is the least length to which KAI shortens a name: 33 characters, less the
# further digits of a container's index.
shortest_cut_name := 31
