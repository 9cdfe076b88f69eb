# Makes a Job retry a preempted or evicted pod without counting it against the Job's
# backoffLimit.
package core.jobs

import data.sluice.lib.ask

defaults.spec.podFailurePolicy := {"rules": [{
	"action": "Ignore",
	"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}]} if {
	fillable
}

# A Job with a pod failure policy replaces its pods only after they have ended.
defaults.spec.podReplacementPolicy := "Failed" if fillable

# Kubernetes allows a pod failure policy only with restartPolicy Never.
fillable if {
	ask.gpu
	not input.object.spec.podFailurePolicy
	input.object.spec.template.spec.restartPolicy == "Never"
}

warn contains {
	"msg": "a pod that is preempted or evicted counts as a failure of this Job",
	"field": "spec.podFailurePolicy.rules",
	"fix": "put a rule with action Ignore for the pod condition DisruptionTarget first",
} if {
	ask.gpu
	input.object.spec.podFailurePolicy
	not ignores_disruptions
}

# The first matching rule applies.
ignores_disruptions if {
	first := min(ignoring)
	every place in counting { place > first }
}

ignoring contains place if {
	some place, rule in input.object.spec.podFailurePolicy.rules
	rule.action == "Ignore"
	of_disruption(rule)
}

counting contains place if {
	some place, rule in input.object.spec.podFailurePolicy.rules
	rule.action != "Ignore"
	matches_disrupted(rule)
}

matches_disrupted(rule) if of_disruption(rule)

# The exit codes of SIGKILL and SIGTERM.
matches_disrupted(rule) if {
	some code in [137, 143]
	of_code(rule.onExitCodes, code)
}

of_disruption(rule) if {
	some condition in rule.onPodConditions
	condition.type == "DisruptionTarget"
	object.get(condition, "status", "True") == "True"
}

of_code(codes, code) if {
	codes.operator == "In"
	code in codes.values
}

of_code(codes, code) if {
	codes.operator == "NotIn"
	not code in codes.values
}
