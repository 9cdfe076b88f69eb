# The GPU quota of a project: its unit, and what policies render of its ResourceQuota.
package sluice.lib.quotas

# milli converts GPUs to thousandths, the unit of GPU quota.
milli(gpus) := round(gpus * 1000)

# is_charge: admission charges a pod in the resource.
is_charge(resource) if strings.any_prefix_match(resource, ["sluice.dev/gpu-milli", "sluice.dev/guaranteed-milli"])

# gpu_limits returns the limit and the guarantee of a pool, or of pools that share their
# quota resource, in the form of a ResourceQuota. Pods that cannot be preempted are charged
# both, so they never use borrowed GPUs.
gpu_limits(pool, limit, guaranteed) := {
	sprintf("requests.%s", [pool.quotaResource]): format_int(milli(limit), 10),
	sprintf("requests.%s", [pool.guaranteedResource]): format_int(milli(guaranteed), 10),
}

# resource_quota returns limits of the project. Lifecycle merges those of all policies into
# one ResourceQuota: of a request that one of several denies, the API server may admit or
# charge the rest (kubernetes/kubernetes#141904).
resource_quota(limits) := {
	"apiVersion": "v1",
	"kind": "ResourceQuota",
	"metadata": {"name": "sluice", "namespace": input.project.namespace},
	"spec": {"hard": limits},
}
