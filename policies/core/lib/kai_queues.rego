# The quota of a project or department as queues of KAI-Scheduler, and in the format of
# kai-resource-management.
package sluice.lib.kai_queues

import data.sluice.lib.kai

# queue returns the queue of an owner (input.project or input.department) in a pool. Pods
# select their queue by a label with its name. The queue has the same label, so the API
# server denies a name that is not a valid label value.
queue(owner, name, pool) := {
	"apiVersion": "scheduling.run.ai/v2",
	"kind": "Queue",
	"metadata": {"name": name, "labels": object.union({kai.queue_label_key(pool): name}, kai.shard_labels(pool))},
	"spec": {"displayName": owner.name, "resources": {resource: numbers | some resource, numbers in resources(owner, pool)}},
}

# krm_queue returns the queue as an entry of a Project or Department of
# kai-resource-management.
krm_queue(owner, name, pool) := {"name": name, "nodepool": kai.shard_name(pool), "resources": {resource: {"deserved": numbers.quota, "limit": numbers.limit, "overQuotaWeight": numbers.overQuotaWeight} |
	some resource, numbers in resources(owner, pool)
}}

# resources returns the quotas of a queue. It sets all nine numbers, because KAI reads an
# omitted number as 0.
resources(owner, pool) := {
	"gpu": {
		"quota": in_units(pool, pool.guaranteed),
		"limit": in_units(pool, limit(owner, pool)),
		"overQuotaWeight": pool.weight,
	},
	"cpu": unweighted_quota(owner, "cpu"),
	"memory": unweighted_quota(owner, "memory"),
}

# limit returns the limit of a queue. In a closed project it is 0: KAI starts nothing, and does not end what runs above
# a limit by itself. Other queues can reclaim the preemptible pods of what runs, whatever its guarantee.
limit(owner, pool) := 0 if owner.closed

else := pool.limit

# in_units returns a number of GPUs in units of KAI. KAI adds shares as binary fractions,
# in which three times 0.1 is more than 0.3, and compares the sum without a tolerance. A
# ten-thousandth more is less than any further share. Whole numbers stay as they are: KAI
# divides what is left of a pool in whole GPUs.
in_units(pool, gpus) := ((gpus * 10000) + 1) / 10000 if {
	pool.sharing == "KAI"
	gpus != floor(gpus)
} else := gpus * kai.units_per_gpu(pool)

unweighted_quota(owner, resource) := {"quota": limit, "limit": limit, "overQuotaWeight": 1} if limit := in_kai_units(owner, resource)

else := {"quota": -1, "limit": -1, "overQuotaWeight": 1}

# in_kai_units returns CPU in thousandths of a core, and memory in megabytes.
in_kai_units(owner, "cpu") := floor(units.parse(owner.resources.cpu) * 1000)

in_kai_units(owner, "memory") := floor(units.parse_bytes(owner.resources.memory) / 1000000)
