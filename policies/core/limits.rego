# How long a GPU pod's workload may run, and how long the pod has to end.
package core.limits

import data.sluice.lib.ask

overrides.metadata.annotations["sluice.dev/time-limit"] := time_limit if ask.gpu

# Nobody but this policy says how long a workload may run.
remove contains ["metadata", "annotations", "sluice.dev/time-limit"] if not limited

limited if {
	ask.gpu
	time_limit
}

# The shorter of what the author wants and what the project may. It is undefined
# where neither says anything.
time_limit := input.workload.maxRuntime if {
	input.workload.maxRuntimeSeconds > 0
	not longer_than_allowed
} else := project_limit.maxRuntime if project_limit.maxRuntimeSeconds > 0

longer_than_allowed if {
	project_limit.maxRuntimeSeconds > 0
	input.workload.maxRuntimeSeconds > project_limit.maxRuntimeSeconds
}

project_limit := input.project.limits[input.workload.type]

# Memory of a GPU is free only once its processes are gone.
overrides.spec.terminationGracePeriodSeconds := minimum_grace if {
	ask.gpu
	input.object.spec.terminationGracePeriodSeconds < minimum_grace
}

minimum_grace := input.parameters.minimumGraceSeconds

# A pod that was told to end holds its GPUs until its time to end is over: it would
# outlast every limit, and whoever waits for what is guaranteed.
overrides.spec.terminationGracePeriodSeconds := maximum_grace if {
	ask.gpu
	input.object.spec.terminationGracePeriodSeconds > maximum_grace
}

maximum_grace := max([input.parameters.maximumGraceSeconds, minimum_grace])

warn contains {
	"msg": sprintf("the time limit %s is longer than the project's for %s, %s: the project's limit applies", [
		input.workload.maxRuntime, input.workload.type, project_limit.maxRuntime,
	]),
	"field": "metadata.annotations[sluice.dev/max-runtime]",
} if {
	ask.gpu
	longer_than_allowed
}
