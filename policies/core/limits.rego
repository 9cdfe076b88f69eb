# Sets the time limit of a GPU pod's workload and the use from which on it counts as active,
# bounds the grace period of pods, and refuses GPU pods that hold quota behind a scheduling gate.
package core.limits

import data.sluice.lib.openpools
import data.sluice.lib.pools
import data.sluice.lib.request

overrides.metadata.annotations["sluice.dev/time-limit"] := time_limit if request.includes_gpu

# Only this policy sets the time limit.
remove contains ["metadata", "annotations", "sluice.dev/time-limit"] if not has_time_limit

has_time_limit if {
	request.includes_gpu
	time_limit
}

# The agent on the pod's node reads from it when the pod is idle.
overrides.metadata.annotations["sluice.dev/active"] := input.project.activity if request.includes_gpu

remove contains ["metadata", "annotations", "sluice.dev/active"] if not request.includes_gpu

# time_limit is the shorter of the author's limit and the project's limit. It is
# undefined if neither is set.
time_limit := input.workload.maxRuntime if {
	input.workload.maxRuntimeSeconds > 0
	not exceeds_project_limit
} else := project_limit.maxRuntime if project_limit.maxRuntimeSeconds > 0

exceeds_project_limit if {
	project_limit.maxRuntimeSeconds > 0
	input.workload.maxRuntimeSeconds > project_limit.maxRuntimeSeconds
}

project_limit := input.project.limits[input.workload.type]

# GPU memory is free only after all processes have ended.
overrides.spec.terminationGracePeriodSeconds := minimum_grace if {
	request.includes_gpu
	input.object.spec.terminationGracePeriodSeconds < minimum_grace
}

minimum_grace := input.parameters.minimumGraceSeconds

# A terminating pod can hold its GPUs, and its place on a node, for its whole grace period,
# beyond every limit and every preemption. A GPU pod that preempts a pod without GPUs for its
# CPUs or its memory waits for it.
overrides.spec.terminationGracePeriodSeconds := maximum_grace if {
	input.object.spec.terminationGracePeriodSeconds > maximum_grace
}

maximum_grace := max([input.parameters.maximumGraceSeconds, minimum_grace]) if request.includes_gpu

else := min([input.parameters.maximumGraceSeconds, input.parameters.maximumGraceSecondsOnGPUNodes]) if openpools.can_run_in_one

else := input.parameters.maximumGraceSeconds

# A gated pod is charged, and after its admission holds GPUs, for as long as its author leaves the gate.
deny contains {
	"msg": sprintf("the scheduling gate %s keeps the pod from starting while its GPUs are reserved", [foreign[0]]),
	"field": "spec.schedulingGates",
	"fix": "leave the gate out and create the pod when it can start, or ask the cluster administrators to add the gate to the parameter schedulingGates of core.limits",
} if {
	request.includes_gpu
	foreign := [gate.name |
		some gate in input.object.spec.schedulingGates
		not gate.name in pools.scheduling_gates
		not gate.name in input.parameters.schedulingGates
	]
	count(foreign) > 0
}

warn contains {
	"msg": sprintf("the time limit %s is longer than the project's for %s, %s: the project's limit applies", [
		input.workload.maxRuntime, input.workload.type, project_limit.maxRuntime,
	]),
	"field": "metadata.annotations[sluice.dev/max-runtime]",
} if {
	request.includes_gpu
	exceeds_project_limit
}
