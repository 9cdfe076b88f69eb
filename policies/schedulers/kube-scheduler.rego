# Pods and quotas for Kubernetes' own scheduler. It has no queues: the API server
# counts the pools' currencies, in two quotas for each pool.
package schedulers.kube_scheduler

import data.sluice.lib.ask
import data.sluice.lib.pools
import data.sluice.lib.words

overrides.spec.schedulerName := "default-scheduler" if {
	ask.gpu
	pools.first.scheduler == "kube-scheduler"
}

# What the project may have at all.
objects contains quota(sprintf("sluice-%s", [pool.name]), hard(pool, pool.limit)) if {
	some pool in served
}

# What it may have for pods that cannot be preempted: nothing that is lent to it
# is held by a pod that stays.
objects contains object.union(whole, {"spec": {"scopeSelector": not_preemptible}}) if {
	some pool in served
	whole := quota(sprintf("sluice-%s.guaranteed", [pool.name]), hard(pool, pool.guaranteed))
}

served := [pool | some pool in input.nodePools; pool.scheduler == "kube-scheduler"]

hard(pool, gpus) := {sprintf("requests.%s", [pool.currency]): format_int(words.milli(gpus), 10)}

quota(name, limits) := {
	"apiVersion": "v1",
	"kind": "ResourceQuota",
	"metadata": {
		"name": name,
		"namespace": input.project.namespace,
		"labels": {"app.kubernetes.io/managed-by": "sluice"},
	},
	"spec": {"hard": limits},
}

not_preemptible := {"matchExpressions": [{
	"scopeName": "PriorityClass",
	"operator": "In",
	"values": ask.counted_classes,
}]}
