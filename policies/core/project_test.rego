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

test_announced_evictions_are_removed if {
	annotations := {"sluice.dev/preempt-at": "2020-01-01T00:00:00Z", "sluice.dev/preempt-reason": "Preempted", "sluice.dev/preempt-for": "x"}
	count(policy.remove) == 3 with input as object.union(fixtures.input_for(fixtures.cpu, []), {"object": {"metadata": {"annotations": annotations}}})
}

test_active_project_accepts_gpu_pods if {
	count(policy.deny) == 0 with input as fixtures.input_for(fixtures.gpus(1), [])
}

expired := {"phase": "Expired", "closed": true, "closedSince": "2026-10-01T00:00:00+02:00"}

input_of(workload, project) := object.union(fixtures.input_for(workload, []), {"project": project})

test_expired_project_denies_gpu_pods if {
	denials := policy.deny with input as input_of(fixtures.gpus(1), expired)
	denials == {{
		"msg": "project thesis has expired: it has accepted no new pods with GPUs since 2026-10-01",
		"fix": "an owner, Anna Beispiel or Ben Muster, can renew it with sluice renew project/thesis; then create the pod again",
	}}
	count(policy.deny) == 0 with input as input_of(fixtures.cpu, expired)
}

# A project that expired accepts pods that replace others, and one whose deletion is requested because no owner
# confirmed it, accepts all pods.
test_closed_counts_and_not_the_phase if {
	every phase in ["Expired", "PendingDeletion"] {
		count(policy.deny) == 0 with input as input_of(fixtures.gpus(1), {"phase": phase})
	}
	count(policy.deny) == 1 with input as input_of(fixtures.gpus(1), {"closed": true})
}

test_owners_in_message_are_limited if {
	some denial in policy.deny with input as input_of(fixtures.gpus(1), object.union(expired, {"owners": ["A", "B", "C", "D"]}))
	startswith(denial.fix, "an owner, such as A, B, C, can renew it")
}

test_deleted_project_denies_gpu_pods if {
	some denial in policy.deny with input as input_of(fixtures.gpus(1), object.union(expired, {"phase": "Deleting"}))
	denial.msg == "project thesis is being deleted: it accepts no new pods with GPUs"
	denial.fix == "create the pod in another project"
}
