# The quota of a project or department as queues of KAI-Scheduler, and in the format of
# kai-resource-management.
package sluice.lib.kai_queues

import data.sluice.lib.kai

# of is the queue of an owner (input.project or input.department) in a pool. Pods select
# their queue by a label with its name. The queue has the same label, so the API server
# denies a name that is not a valid label value.
of(owner, name, pool) := {
	"apiVersion": "scheduling.run.ai/v2",
	"kind": "Queue",
	"metadata": {"name": name, "labels": object.union({kai.queue_key(pool): name}, kai.shard_labels(pool))},
	"spec": {"displayName": owner.name, "resources": {resource: numbers | some resource, numbers in amounts(owner, pool)}},
}

# declared is the queue as an entry of a Project or Department of
# kai-resource-management.
declared(owner, name, pool) := {"name": name, "nodepool": kai.shard_name(pool), "resources": {resource: {"deserved": numbers.quota, "limit": numbers.limit, "overQuotaWeight": numbers.overQuotaWeight} |
	some resource, numbers in amounts(owner, pool)
}}

# amounts sets all nine numbers, because KAI reads an omitted number as 0.
amounts(owner, pool) := {
	"gpu": {
		"quota": pool.guaranteed * kai.slices(pool),
		"limit": pool.limit * kai.slices(pool),
		"overQuotaWeight": pool.weight,
	},
	"cpu": capped(owner, "cpu"),
	"memory": capped(owner, "memory"),
}

capped(owner, resource) := {"quota": most, "limit": most, "overQuotaWeight": 1} if most := in_units(owner, resource)

else := {"quota": -1, "limit": -1, "overQuotaWeight": 1}

# CPU in thousandths of a core, memory in megabytes.
in_units(owner, "cpu") := floor(units.parse(owner.resources.cpu) * 1000)

in_units(owner, "memory") := floor(units.parse_bytes(owner.resources.memory) / 1000000)
