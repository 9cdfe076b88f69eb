# Pods and quotas for kube-scheduler. It has no queues: the API server counts the
# pools' quota resources in the project's ResourceQuota.
package schedulers.kube_scheduler

import data.sluice.lib.pools
import data.sluice.lib.quotas
import data.sluice.lib.request

overrides.spec.schedulerName := "default-scheduler" if {
	request.includes_gpu
	pools.preferred.scheduler == "kube-scheduler"
}

objects contains quotas.resource_quota(quotas.gpu_limits(pool, pool.limit, pool.guaranteed)) if {
	input.object.kind == "Project"
	some pool in input.nodePools
	pool.scheduler == "kube-scheduler"
}
