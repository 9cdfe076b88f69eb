package core.project_test

import data.core.project as policy
import data.fixtures

test_labels_and_creator if {
	policy.overrides.metadata == {
		"labels": {"sluice.dev/project": "thesis", "sluice.dev/department": "students", "sluice.dev/workload-type": "train"},
		"annotations": {"sluice.dev/created-by": "anna"},
	} with input as fixtures.input_for(fixtures.cpu, [])
}

# Lifecycle alone writes when a workload ends, and until when it stays stopped.
test_annotations_of_lifecycle_are_removed if {
	annotations := {"sluice.dev/ends-at": "2099-01-01T00:00:00Z", "sluice.dev/stopped-until": "2000-01-01T00:00:00Z", "own": "1"}
	policy.remove == {["metadata", "annotations", "sluice.dev/ends-at"], ["metadata", "annotations", "sluice.dev/stopped-until"]} with input as object.union(fixtures.input_for(fixtures.cpu, []), {"object": {"metadata": {"annotations": annotations}}})
}

test_active_project_accepts_gpu_pods if {
	count(policy.deny) == 0 with input as fixtures.input_for(fixtures.gpus(1), [])
}

test_expired_project_denies_gpu_pods if {
	some denial in policy.deny with input as fixtures.input_for(fixtures.gpus(1), [])
		with input.project.phase as "Expired"
	denial.msg == "project thesis is expired: it accepts no new pods with GPUs"
	count(policy.deny) == 0 with input as fixtures.input_for(fixtures.cpu, []) with input.project.phase as "Expired"
}

test_deleted_project_denies_gpu_pods if {
	some denial in policy.deny with input as fixtures.input_for(fixtures.gpus(1), [])
		with input.project.phase as "Deleting"
	denial.msg == "project thesis is being deleted: it accepts no new pods with GPUs"
	denial.fix == "create the pod in another project"
}

test_quota_not_applied if {
	some denial in policy.deny with input as fixtures.input_for(fixtures.gpus(1), [])
		with input.project.quotaApplied as false
	startswith(denial.fix, "try again in a moment")
}
