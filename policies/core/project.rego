# Records the project, the department, the workload type and the creator on the
# pod. The values come from the namespace and the request, and override values
# that the author set.
package core.project

import data.sluice.lib.request

overrides.metadata.labels["sluice.dev/project"] := input.project.name

overrides.metadata.labels["sluice.dev/department"] := input.project.department

overrides.metadata.labels["sluice.dev/workload-type"] := input.workload.type

overrides.metadata.annotations["sluice.dev/created-by"] := input.review.userInfo.username

# Lifecycle writes the end of a workload, and until when it stays stopped.
remove contains ["metadata", "annotations", key] if {
	some key in ["sluice.dev/ends-at", "sluice.dev/stopped-until"]
	input.object.metadata.annotations[key]
}

deny contains {
	"msg": sprintf("project %s is %s: it accepts no new pods with GPUs", [input.project.name, phase]),
	"fix": fix,
} if {
	request.includes_gpu
	phase := ended_phases[input.project.phase]
	fix := object.get(fixes, input.project.phase, "an owner of the project can renew it; then create the pod again")
}

deny contains {
	"msg": sprintf("the GPU quota of project %s is not applied yet", [input.project.name]),
	"fix": "try again in a moment; if the error persists, ask the cluster administrators to check the project's conditions",
} if {
	request.includes_gpu
	not ended_phases[input.project.phase]
	not input.project.quotaApplied
}

# ended_phases describes the phases of a project that has ended.
ended_phases := {
	"Expired": "expired",
	"Suspended": "expired and suspended",
	"PendingDeletion": "expired and to be deleted",
	"Deleting": "being deleted",
}

fixes := {"Deleting": "create the pod in another project"}
