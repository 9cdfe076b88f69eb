# The node pools on whose nodes a pod without GPUs can run.
package sluice.lib.openpools

# can_run_in_one: the pod tolerates the taints of a pool's nodes, and neither its node
# selector nor its affinity keeps it off them.
can_run_in_one if {
	some pool in input.project.openPools
	not selects_others(pool)
	not excludes(pool)
	every taint in pool.taints {
		tolerates(taint)
	}
}

selects_others(pool) if {
	some key, value in input.object.spec.nodeSelector
	pool.nodeSelector[key] != value
}

# excludes: each of the node selector terms, of which the pod needs one, excludes the pool.
excludes(pool) if {
	terms := input.object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms
	count(terms) > 0
	every term in terms {
		some requirement in term.matchExpressions
		differs(requirement, pool.nodeSelector[requirement.key])
	}
}

differs(requirement, value) if {
	requirement.operator == "In"
	not value in requirement.values
}

differs(requirement, value) if {
	requirement.operator == "NotIn"
	value in requirement.values
}

differs(requirement, _) if requirement.operator == "DoesNotExist"

tolerates(taint) if {
	some toleration in input.object.spec.tolerations
	object.get(toleration, "key", "") in {"", taint.key}
	object.get(toleration, "effect", "") in {"", taint.effect}
	has_value(toleration, object.get(taint, "value", ""))
}

has_value(toleration, _) if toleration.operator == "Exists"

has_value(toleration, value) if {
	object.get(toleration, "operator", "Equal") == "Equal"
	object.get(toleration, "key", "") != "" # else Kubernetes requires Exists
	object.get(toleration, "value", "") == value
}
