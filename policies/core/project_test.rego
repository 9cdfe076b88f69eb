package core.project_test

import data.core.project as policy
import data.fixtures

test_labels_and_creator if {
	policy.overrides.metadata == {
		"labels": {"sluice.dev/project": "thesis", "sluice.dev/department": "students", "sluice.dev/workload-type": "train"},
		"annotations": {"sluice.dev/created-by": "anna"},
	} with input as fixtures.input_for(fixtures.cpu, [])
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
