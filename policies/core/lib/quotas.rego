# The GPU quota of a project: its unit, and its ResourceQuotas.
package sluice.lib.quotas

# milli converts GPUs to thousandths, the unit of GPU quota.
milli(gpus) := round(gpus * 1000)

# guaranteed_classes are the priority classes of non-preemptible pods. The ResourceQuota
# of the guarantee selects pods by them.
guaranteed_classes := ["sluice-interactive", "sluice-inference"]

# limit_and_guarantee returns the two ResourceQuotas of a resource: the limit for all
# pods, and the guarantee for non-preemptible pods. A non-preemptible pod therefore
# never uses borrowed GPUs.
limit_and_guarantee(name, resource, limit, guaranteed) := {
	resource_quota(name, resource, limit),
	object.union(
		resource_quota(sprintf("%s.guaranteed", [name]), resource, guaranteed),
		{"spec": {"scopeSelector": non_preemptible_scope}},
	),
}

resource_quota(name, resource, gpus) := {
	"apiVersion": "v1",
	"kind": "ResourceQuota",
	"metadata": {
		"name": name,
		"namespace": input.project.namespace,
		"labels": {"app.kubernetes.io/managed-by": "sluice"},
	},
	"spec": {"hard": {sprintf("requests.%s", [resource]): format_int(milli(gpus), 10)}},
}

non_preemptible_scope := {"matchExpressions": [{
	"scopeName": "PriorityClass",
	"operator": "In",
	"values": guaranteed_classes,
}]}
