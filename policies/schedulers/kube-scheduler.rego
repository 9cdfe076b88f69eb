# Pods and quotas for kube-scheduler. It has no queues: the API server counts the
# pools' quota resources in two ResourceQuotas for each pool.
package schedulers.kube_scheduler

import data.sluice.lib.pools
import data.sluice.lib.quotas
import data.sluice.lib.request

overrides.spec.schedulerName := "default-scheduler" if {
	request.includes_gpu
	pools.preferred.scheduler == "kube-scheduler"
}

objects contains quota if {
	input.object.kind == "Project"
	some pool in input.nodePools
	pool.scheduler == "kube-scheduler"
	some quota in quotas.limit_and_guarantee(sprintf("sluice-%s", [pool.name]), pool.quotaResource, pool.limit, pool.guaranteed)
}
