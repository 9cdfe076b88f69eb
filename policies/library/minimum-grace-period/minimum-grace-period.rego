# METADATA
# title: Minimum grace period
# description: >-
#   Gives pods with GPUs the time to write a checkpoint when they are stopped or preempted: the grace period is set where the
#   author left it open, and refused where the author chose a shorter one. Longer ones stay, up to maximumGraceSeconds of
#   core.limits.
package minimum_grace_period

import data.sluice.lib.request

# The API server sets 30 seconds where the author sets none.
defaults.spec.terminationGracePeriodSeconds := input.parameters.seconds if applies

deny contains {
	"msg": sprintf("a grace period of %d seconds is shorter than %d", [seconds, input.parameters.seconds]),
	"field": "spec.terminationGracePeriodSeconds",
	"fix": "leave it out, or set a longer one",
} if {
	applies
	seconds := input.object.spec.terminationGracePeriodSeconds
	seconds != 30
	seconds < input.parameters.seconds
}

applies if {
	request.includes_gpu
	input.workload.type in input.parameters.types
}
