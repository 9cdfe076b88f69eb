# METADATA
# title: Maximum GPUs per workload
# description: >-
#   Limits the GPUs of one workload by its type and the groups of its author. A Job counts with its parallelism, other
#   workloads with one pod. The project's quota limits all workloads together, whatever this policy allows.
# custom:
#   misses: >-
#     the number of replicas of other workloads than Jobs. Pods that a controller creates have the groups of the controller,
#     so for them the largest limit of any group counts; their Job or template is evaluated with the groups of its author
package maximum_gpus

deny contains {
	"msg": sprintf("the workload requests %v GPUs, and its author may have at most %v for the type %s", [requested, maximum, input.workload.type]),
	"fix": "request fewer, or ask your administrators to add you to a group with a higher limit",
} if {
	requested > maximum
}

requested := input.workload.gpus * parallelism

default parallelism := 1

parallelism := input.object.spec.parallelism if input.object.kind == "Job"

maximum := max({0} | {limit.gpus |
	some limit in input.parameters.limits
	input.workload.type in object.get(limit, "types", [input.workload.type])
	applies_to_author(limit)
})

applies_to_author(limit) if not limit.groups

applies_to_author(limit) if {
	some group in limit.groups
	group in object.get(input.review.userInfo, "groups", [])
}

applies_to_author(limit) if {
	limit.groups
	startswith(input.review.userInfo.username, "system:")
}
