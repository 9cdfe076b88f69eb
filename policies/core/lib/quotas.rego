# The ResourceQuotas of a project's GPUs.
package sluice.lib.quotas

import data.sluice.lib.ask
import data.sluice.lib.words

# both are the two quotas of a quota resource: the limit for all pods, and the guarantee
# for non-preemptible pods, so that such a pod never holds borrowed GPUs.
both(name, currency, limit, guaranteed) := {
	quota(name, currency, limit),
	object.union(
		quota(sprintf("%s.guaranteed", [name]), currency, guaranteed),
		{"spec": {"scopeSelector": not_preemptible}},
	),
}

quota(name, currency, gpus) := {
	"apiVersion": "v1",
	"kind": "ResourceQuota",
	"metadata": {
		"name": name,
		"namespace": input.project.namespace,
		"labels": {"app.kubernetes.io/managed-by": "sluice"},
	},
	"spec": {"hard": {sprintf("requests.%s", [currency]): format_int(words.milli(gpus), 10)}},
}

not_preemptible := {"matchExpressions": [{
	"scopeName": "PriorityClass",
	"operator": "In",
	"values": ask.counted_classes,
}]}
