# Makes a Job retry a preempted or evicted pod without counting it against the Job's
# backoffLimit.
package core.jobs

import data.sluice.lib.format
import data.sluice.lib.kai
import data.sluice.lib.pools
import data.sluice.lib.request

defaults.spec.podFailurePolicy := {"rules": [{
	"action": "Ignore",
	"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}]} if {
	needs_failure_policy
}

# A Job with a pod failure policy replaces its pods only after they have ended.
defaults.spec.podReplacementPolicy := "Failed" if needs_failure_policy

# Kubernetes allows a pod failure policy only with restartPolicy Never.
needs_failure_policy if {
	request.includes_gpu
	not input.object.spec.podFailurePolicy
	input.object.spec.template.spec.restartPolicy == "Never"
}

warn contains {
	"msg": "a pod that is preempted or evicted counts as a failure of this Job",
	"field": "spec.podFailurePolicy.rules",
	"fix": "put a rule with action Ignore for the pod condition DisruptionTarget first",
} if {
	request.includes_gpu
	input.object.spec.podFailurePolicy
	not ignores_disruptions
}

warn contains {
	"msg": sprintf("with backoffLimit 0 this Job fails at the first preemption: KAI-Scheduler does not mark the pods that it preempts in node pool %s", [format.list(unmarked)]),
	"field": "spec.backoffLimit",
	"fix": "set it to the number of preemptions that the Job may survive, or ask the cluster administrators for the setting in the node pool's condition RequirementsMet",
} if {
	request.includes_gpu
	request.preemptible
	input.object.spec.backoffLimit == 0
	unmarked := [pool.name | some pool in pools.selected; kai.leaves_preempted_pods_unmarked(pool)]
	count(unmarked) > 0
}

# ignores_disruptions: a rule that ignores disruptions precedes all rules that count them.
# The first matching rule applies.
ignores_disruptions if {
	first := min(ignoring_indexes)
	every index in counting_indexes { index > first }
}

ignoring_indexes contains index if {
	some index, rule in input.object.spec.podFailurePolicy.rules
	rule.action == "Ignore"
	matches_disruption_condition(rule)
}

counting_indexes contains index if {
	some index, rule in input.object.spec.podFailurePolicy.rules
	rule.action != "Ignore"
	matches_disrupted_pod(rule)
}

# matches_disrupted_pod: the rule matches a pod that was preempted or evicted.
matches_disrupted_pod(rule) if matches_disruption_condition(rule)

# 137 and 143 are the exit codes of SIGKILL and SIGTERM.
matches_disrupted_pod(rule) if {
	some code in [137, 143]
	matches_exit_code(rule.onExitCodes, code)
}

matches_disruption_condition(rule) if {
	some condition in rule.onPodConditions
	condition.type == "DisruptionTarget"
	object.get(condition, "status", "True") == "True"
}

matches_exit_code(codes, code) if {
	codes.operator == "In"
	code in codes.values
}

matches_exit_code(codes, code) if {
	codes.operator == "NotIn"
	not code in codes.values
}
