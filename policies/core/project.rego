# Records the project, the department, the workload type and the creator on the
# pod. The values come from the namespace and the request, and override values
# that the author set.
package core.project

import data.sluice.lib.request

overrides.metadata.labels["sluice.dev/project"] := input.project.name

overrides.metadata.labels["sluice.dev/department"] := input.project.department

overrides.metadata.labels["sluice.dev/workload-type"] := input.workload.type

overrides.metadata.annotations["sluice.dev/created-by"] := input.review.userInfo.username

# Lifecycle writes the end of a workload, until when it stays stopped, and the eviction of a pod.
remove contains ["metadata", "annotations", key] if {
	some key in [
		"sluice.dev/ends-at", "sluice.dev/stopped-until", "sluice.dev/preempt-at", "sluice.dev/preempt-reason",
		"sluice.dev/preempt-for",
	]
	input.object.metadata.annotations[key]
}

deny contains {
	"msg": sprintf("project %s %s", [input.project.name, closed_text]),
	"fix": fix,
} if {
	request.includes_gpu
	input.project.closed
}

# closed_text says why a closed project accepts no pods.
closed_text := "is being deleted: it accepts no new pods with GPUs" if input.project.phase == "Deleting"

else := "has expired: it accepts no new pods with GPUs" if input.project.closedSince == ""

else := sprintf("has expired: it has accepted no new pods with GPUs since %s", [substring(input.project.closedSince, 0, 10)])

fix := "create the pod in another project" if input.project.phase == "Deleting"

else := sprintf("an owner, %s, can renew it with sluice renew project/%s; then create the pod again", [owner_names, input.project.name])

# owner_names are the names of the first three owners.
owner_names := concat(" or ", input.project.owners) if count(input.project.owners) <= 3

else := sprintf("such as %s", [concat(", ", array.slice(input.project.owners, 0, 3))])
