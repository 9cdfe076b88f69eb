# Pods and quotas for kube-scheduler. It has no queues: the API server counts the
# pools' quota resources in two ResourceQuotas for each pool.
package schedulers.kube_scheduler

import data.sluice.lib.ask
import data.sluice.lib.pools
import data.sluice.lib.quotas

overrides.spec.schedulerName := "default-scheduler" if {
	ask.gpu
	pools.first.scheduler == "kube-scheduler"
}

objects contains quota if {
	input.object.kind == "Project"
	some pool in input.nodePools
	pool.scheduler == "kube-scheduler"
	some quota in quotas.both(sprintf("sluice-%s", [pool.name]), pool.currency, pool.limit, pool.guaranteed)
}
