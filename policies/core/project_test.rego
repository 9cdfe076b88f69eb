package core.project_test

import data.core.project as policy
import data.fixtures

test_whose_the_pod_is if {
	policy.overrides.metadata == {
		"labels": {"sluice.dev/project": "thesis", "sluice.dev/department": "students", "sluice.dev/workload-type": "train"},
		"annotations": {"sluice.dev/created-by": "anna"},
	} with input as fixtures.asked(fixtures.cpu, [])
}

test_an_active_project_takes_pods if {
	count(policy.deny) == 0 with input as fixtures.asked(fixtures.gpus(1), [])
}

test_an_expired_project_takes_none_with_gpus if {
	some complaint in policy.deny with input as fixtures.asked(fixtures.gpus(1), [])
		with input.project.phase as "Expired"
	complaint.msg == "project thesis is expired: it takes no new pods with GPUs"
	count(policy.deny) == 0 with input as fixtures.asked(fixtures.cpu, []) with input.project.phase as "Expired"
}

test_a_quota_that_is_not_counted if {
	some complaint in policy.deny with input as fixtures.asked(fixtures.gpus(1), [])
		with input.project.quotaApplied as false
	startswith(complaint.fix, "try again in a moment")
}
